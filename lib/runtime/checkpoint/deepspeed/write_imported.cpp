#include "runtime/checkpoint/deepspeed/write_imported.hpp"

#include "runtime/checkpoint/checkpoint_directory.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "runtime/checkpoint/deepspeed/deepspeed_checkpoint.hpp"
#include "runtime/checkpoint/shard_file.hpp"

namespace dslaunch::runtime::deepspeed {

std::vector<std::string> unfinished_files(const ImportedState& state, const std::string& dir) {
  const std::string directory = writing_directory(dir, state.metadata.step);
  std::vector<std::string> out;
  for (size_t rank = 0; rank < state.shards.size(); ++rank) {
    out.push_back(directory + "/" + shard_name(static_cast<int>(rank)));
  }
  for (const char* name : {kSkeletonName, kManifestName}) out.push_back(directory + "/" + name);
  out.push_back(directory);
  out.push_back(dir + "/" + kLatestName + kWriting);
  return out;
}

std::string write_imported(const ImportedState& state, const std::string& dir, const std::string& skeleton) {
  const int64_t step = state.metadata.step;
  CheckpointDirectory directory(dir, step);
  Manifest manifest{state.metadata, static_cast<int>(state.shards.size()), {}};
  for (size_t rank = 0; rank < state.shards.size(); ++rank) {
    manifest.files.push_back(
        write_shard(directory.path(), static_cast<int>(rank), state.shards[rank], /*rng_state=*/""));
  }
  if (!skeleton.empty()) manifest.files.push_back(directory.add_skeleton(skeleton));
  directory.seal(manifest);
  directory.publish();
  return dir + "/" + step_name(step);
}

}  // namespace dslaunch::runtime::deepspeed
