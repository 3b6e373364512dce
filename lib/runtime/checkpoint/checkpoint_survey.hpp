// What lies in a folder of checkpoints, as this host sees it: which are complete, which are torn and by what. Looks at
// names, sizes and manifests; hashes of shards are checked when they are read. Any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_metadata.hpp"

namespace dslaunch::runtime {

struct FoundCheckpoint {
  std::string path;
  std::optional<int64_t> step;  // of the folder's name
  std::string fault;            // why it cannot be loaded: what is missing, cut off or unreadable; empty: nothing found
  bool is_leftover = false;     // of a save or a removal that was killed; `fault` says so
  bool has_manifest = false;    // the file is there, whatever is in it: this is no save that did not end
  std::string manifest_text;
  std::optional<Manifest> manifest;
  std::vector<CheckpointFile> elsewhere;  // files that other hosts keep (a checkpoint in parts) and that are not here
};

// The folder itself is the checkpoint.
FoundCheckpoint look_at_checkpoint(const std::string& path);

// All of DIR/step_N and what killed saves have left, in the order in which one would load them: the one that `latest`
// names, then earlier steps from the newest on, then later ones (of a run that was gone back from). Empty when DIR is
// no folder; throws SystemError (74) when it cannot be read.
std::vector<FoundCheckpoint> survey_checkpoints(const std::string& dir);

// step_set_aside(), and that of a whole checkpoint beside a DIR/step_N that has lost files, or parts of them.
std::optional<int64_t> step_standing_in(const std::string& path);
// Where the checkpoint of that step lies: DIR/step_N, or what stands in for it.
std::string folder_of_step(const std::string& dir, int64_t step);

// Sorts as survey_checkpoints() does.
bool is_preferred(int64_t step, int64_t other, std::optional<int64_t> latest);

// "rank_00002.safetensors, rank_00003.safetensors of node2; rank_00004.safetensors of node3"
std::string describe_by_host(const std::vector<CheckpointFile>& files);

}  // namespace dslaunch::runtime
