// A leader's side of a save: writes a temporary directory, publishes it as a whole, and removes old checkpoints. One
// thread at a time.
#pragma once
#include <cstdint>
#include <string>

#include "runtime/checkpoint/checkpoint_metadata.hpp"

namespace dslaunch::runtime {

class CheckpointDirectory {
 public:
  // Creates `dir` and the empty DIR/step_N.tmp; removes what killed saves left behind. Throws SystemError(73), or 74
  // when the disk or the quota is full.
  CheckpointDirectory(std::string dir, int64_t step);
  ~CheckpointDirectory();  // removes the directory unless it was published
  CheckpointDirectory(const CheckpointDirectory&) = delete;
  CheckpointDirectory& operator=(const CheckpointDirectory&) = delete;

  const std::string& path() const { return path_; }
  // Copies the file into the directory as kSkeletonName. Throws UserError(66), SystemError(74).
  CheckpointFile add_skeleton(const std::string& file);
  // Writes the manifest and the new contents of `latest` and, unless it is empty, of `best`, and flushes them and the
  // directory: only renames remain. Throws SystemError(74), or 73 when a file cannot be created.
  void seal(const Manifest& manifest, const std::string& best = "");
  // Renames the sealed directory to its name and points `latest`, and `best`, at it. Throws SystemError(74); an error
  // after the first rename says that the checkpoint is complete.
  void publish();

 private:
  std::string replace_target() const;

  const std::string dir_;
  const int64_t step_;
  const std::string path_;    // step_N.tmp
  const std::string target_;  // step_N
  bool published_ = false;
  bool has_new_best_ = false;
};

// Points `latest` of this directory of checkpoints at that step, by rename: after a save, or when a run was rolled back
// to that step, so that the next run continues from there. Throws SystemError(74).
void point_latest(const std::string& dir, int64_t step);

// Replaces the content of `best` ("step_00000050 eval_loss 2.31", a line for each, the best one first) by rename.
// Throws SystemError(74).
void write_best(const std::string& dir, const std::string& best);

// Removes checkpoints of steps before `step` except the newest and those that `best` names; those of later steps (of a
// run that was rolled back) stay. `keep` includes that of `step`; 0 keeps all. Failures are only logged.
void prune_checkpoints(const std::string& dir, int64_t step, int64_t keep);

// The directory in which shards of that save are written.
std::string writing_directory(const std::string& dir, int64_t step);

}  // namespace dslaunch::runtime
