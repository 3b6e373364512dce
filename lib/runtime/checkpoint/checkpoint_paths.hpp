// Names inside a folder of checkpoints, and what of them is complete. Any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::runtime {

inline constexpr char kManifestName[] = "manifest.json";
inline constexpr char kLatestName[] = "latest";
inline constexpr char kSkeletonName[] = "model.pt";

std::string step_name(int64_t step);                      // "step_00000050"
std::optional<int64_t> step_of(const std::string& name);  // of a complete name; nothing for "step_00000050.tmp"
std::string shard_name(int rank);                         // "rank_00003.safetensors"

// Steps with a manifest, ascending. An unreadable or missing folder has none.
std::vector<int64_t> steps_in(const std::string& dir);
// The checkpoint that `latest` names if it has a manifest, else the one of the highest step.
std::optional<std::string> newest_checkpoint(const std::string& dir);

}  // namespace dslaunch::runtime
