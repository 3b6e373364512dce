#include "runtime/checkpoint/deepspeed/write_imported.hpp"

#include "runtime/checkpoint/checkpoint_folder.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "runtime/checkpoint/deepspeed/deepspeed_checkpoint.hpp"
#include "runtime/checkpoint/shard_file.hpp"

namespace dslaunch::runtime::deepspeed {

std::string write_imported(const ImportedState& state, const std::string& dir, const std::string& skeleton) {
  const int64_t step = state.metadata.step;
  CheckpointFolder folder(dir, step);
  Manifest manifest{state.metadata, static_cast<int>(state.shards.size()), {}};
  for (size_t rank = 0; rank < state.shards.size(); ++rank) {
    manifest.files.push_back(write_shard(folder.path(), static_cast<int>(rank), state.shards[rank], /*rng_state=*/""));
  }
  if (!skeleton.empty()) manifest.files.push_back(folder.add_skeleton(skeleton));
  folder.seal(manifest);
  folder.publish();
  return dir + "/" + step_name(step);
}

}  // namespace dslaunch::runtime::deepspeed
