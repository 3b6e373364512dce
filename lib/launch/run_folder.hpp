// The folder that a run writes into.
#pragma once
#include <string>

#include "base/folder_lock.hpp"

namespace dslaunch::launch {

enum class EarlierRun { kRefuse, kKeep, kDiscard };  // without an option; --resume; --overwrite

// Does the folder hold a run: a step's metrics or a checkpoint? What an attempt that never began left is none.
bool holds_run(const std::string& folder);

// Throws UserError(73) when the folder holds a run that `earlier` refuses, or cannot be used. Changes nothing.
void check_run_folder(const std::string& folder, EarlierRun earlier);

// A run folder as a job holds it. With kDiscard the earlier run's own files (nothing else in the folder) are set aside
// until the job's run has begun, and put back at the end of a job whose run never did: a bad first try costs nothing
// but the logs.
class RunFolder {
 public:
  // Checks, makes the folder and takes it for `owner` (73 when a living job has it).
  RunFolder(const std::string& folder, EarlierRun earlier, const std::string& owner);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

 private:
  const std::string path_;
  FolderLock lock_;
};

}  // namespace dslaunch::launch
