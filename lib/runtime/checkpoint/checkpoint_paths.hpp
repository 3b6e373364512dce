// Names inside a directory of checkpoints. Any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::runtime {

inline constexpr char kManifestName[] = "manifest.json";
inline constexpr char kLatestName[] = "latest";
inline constexpr char kBestName[] = "best";
inline constexpr char kSkeletonName[] = "model.pt";
inline constexpr char kFullWeightsName[] = "weights.safetensors";
// Suffixes of directories that are being written or removed: not yet checkpoints, or no longer.
inline constexpr char kWriting[] = ".tmp", kRemoving[] = ".removing";
// A complete checkpoint that was moved aside for a new one of the same step. It still counts while the new one is
// missing or has lost its files.
inline constexpr char kReplaced[] = ".replaced";

std::string step_name(int64_t step);                      // "step_00000050"
std::optional<int64_t> step_of(const std::string& name);  // of a complete name; empty for "step_00000050.tmp"
std::string shard_name(int rank);                         // "rank_00003.safetensors"
bool is_shard_name(const std::string& name);

// The directory that a user means by `path`: DIR for the file DIR/latest; the best checkpoint for the file DIR/best
// (DIR if that file names none); a checkpoint for its manifest; for a run directory that of its checkpoints; for a
// missing checkpoint the directory where a killed replacement left it; otherwise `path`.
std::string resolve_checkpoint_path(const std::string& path);

// The step of DIR/step_N.replaced if DIR/step_N does not exist (a replacement was killed midway), or if DIR/step_N has
// no manifest and this one has (a device failure lost it).
std::optional<int64_t> replaced_step(const std::string& path);

// Steps with a manifest, ascending. An unreadable or missing directory has none.
std::vector<int64_t> steps_in(const std::string& dir);
// The step that `latest` names.
std::optional<int64_t> latest_step(const std::string& dir);
// The steps that `best` names, the best one first.
std::vector<int64_t> best_steps(const std::string& dir);

}  // namespace dslaunch::runtime
