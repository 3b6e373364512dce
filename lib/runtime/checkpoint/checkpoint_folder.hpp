// A leader's side of a save: the folder that is written aside, published whole, and the removal of old ones.
// One thread at a time.
#pragma once
#include <cstdint>
#include <string>

#include "runtime/checkpoint/checkpoint_metadata.hpp"

namespace dslaunch::runtime {

class CheckpointFolder {
 public:
  // Makes `dir` and the empty DIR/step_N.tmp; removes what killed saves left behind. Throws SystemError(73), or 74 when
  // the disk or the quota is full.
  CheckpointFolder(std::string dir, int64_t step);
  ~CheckpointFolder();  // removes the folder unless it was published
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  const std::string& path() const { return path_; }
  // Copies the file into the folder under kSkeletonName. Throws UserError(66), SystemError(74).
  CheckpointFile add_skeleton(const std::string& file);
  // Writes the manifest and what `latest` becomes, and flushes them and the folder: what is left are two renames.
  // Throws SystemError(74), or 73 when a file cannot be made.
  void seal(const Manifest& manifest);
  // Renames the sealed folder to its name and points `latest` at it. Throws SystemError(74); one from after the first
  // rename says that the checkpoint is complete.
  void publish();
  // Removes checkpoints of earlier steps but the newest; those of later steps (of a run that was gone back from) stay.
  // `keep` counts the published one; 0 keeps all. Failures are logged only.
  void prune(int64_t keep) const;

 private:
  std::string replace_target() const;

  const std::string dir_;
  const int64_t step_;
  const std::string path_;    // step_N.tmp
  const std::string target_;  // step_N
  bool published_ = false;
};

// `latest` of this folder of checkpoints names that step from now on: of a save, or of a run that went back to it, so
// that whoever goes on next begins there. By rename. Throws SystemError(74).
void point_latest(const std::string& dir, int64_t step);

// Where shards of that save are written.
std::string writing_folder(const std::string& dir, int64_t step);

}  // namespace dslaunch::runtime
