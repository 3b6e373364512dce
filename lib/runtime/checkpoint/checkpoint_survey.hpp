// The contents of a directory of checkpoints, as this host sees it: which are complete, which are incomplete and why.
// Checks names, sizes and manifests; hashes of shards are checked when they are read. Any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "runtime/checkpoint/checkpoint_metadata.hpp"

namespace dslaunch::runtime {

struct FoundCheckpoint {
  std::string path;
  std::optional<int64_t> step;  // of the directory's name
  Result<> loadable;            // the error: missing, truncated or unreadable files
  bool is_leftover = false;     // of a save or a removal that was killed; `loadable` says so
  bool has_manifest = false;    // the file exists, whatever its content: the save of this checkpoint had finished
  std::string manifest_text;
  std::optional<Manifest> manifest;
  std::vector<CheckpointFile> elsewhere;  // files that other hosts keep (a checkpoint in parts), missing here
};

// `path` is the directory of the checkpoint itself.
FoundCheckpoint inspect_checkpoint(const std::string& path);

// All of DIR/step_N and the leftovers of killed saves, in the order of preference for loading: the one that `latest`
// names, then earlier steps from the newest on, then later ones (of a run that was rolled back). Empty when DIR is not
// a directory; throws SystemError (74) when it cannot be read.
std::vector<FoundCheckpoint> survey_checkpoints(const std::string& dir);

// replaced_step(), and also the step of a complete checkpoint whose DIR/step_N has lost files, or parts of them.
std::optional<int64_t> usable_replaced_step(const std::string& path);
// The location of the checkpoint of that step: DIR/step_N, or its stand-in.
std::string directory_of_step(const std::string& dir, int64_t step);

// The sort order of survey_checkpoints().
bool is_preferred(int64_t step, int64_t other, std::optional<int64_t> latest);

// "rank_00002.safetensors, rank_00003.safetensors of node2; rank_00004.safetensors of node3"
std::string describe_by_host(const std::vector<CheckpointFile>& files);

}  // namespace dslaunch::runtime
