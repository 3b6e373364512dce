// Names inside a folder of checkpoints. Any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::runtime {

inline constexpr char kManifestName[] = "manifest.json";
inline constexpr char kLatestName[] = "latest";
inline constexpr char kSkeletonName[] = "model.pt";
inline constexpr char kWholeWeightsName[] = "weights.safetensors";
// Endings of what is being written and of what is being removed: no checkpoints any more, or not yet.
inline constexpr char kWriting[] = ".tmp", kLeaving[] = ".removing";
// A whole checkpoint that makes room for another one of its step; where that one is not there, or has lost its
// files, it still counts.
inline constexpr char kReplaced[] = ".replaced";

std::string step_name(int64_t step);                      // "step_00000050"
std::optional<int64_t> step_of(const std::string& name);  // of a complete name; nothing for "step_00000050.tmp"
std::string shard_name(int rank);                         // "rank_00003.safetensors"
bool is_shard_name(const std::string& name);

// The folder that a user means by `path`: DIR for the file DIR/latest, a checkpoint for its manifest, where a killed
// replacement has left it for a checkpoint that is not there; else `path`.
std::string meant_folder(const std::string& path);

// The step of DIR/step_N.replaced while there is no DIR/step_N (of a replacement that was killed in the middle), or
// only one without a manifest beside this one with its own (a failure of the device has taken it).
std::optional<int64_t> step_set_aside(const std::string& path);

// Steps with a manifest, ascending. An unreadable or missing folder has none.
std::vector<int64_t> steps_in(const std::string& dir);
// The step that `latest` names.
std::optional<int64_t> latest_step(const std::string& dir);

}  // namespace dslaunch::runtime
