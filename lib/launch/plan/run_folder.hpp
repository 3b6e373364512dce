// The folder that a run writes into, or an `exec` that names one.
#pragma once
#include <string>

#include "base/folder_lock.hpp"

namespace dslaunch::launch {

enum class EarlierRun { kRefuse, kKeep, kDiscard };  // without an option; --resume; --overwrite

// Does the folder hold a run: a step's metrics or a checkpoint? What an attempt that never began left is none.
bool holds_run(const std::string& folder);

// Throws UserError(73) when the folder holds a run that `earlier` refuses, or cannot be used. Changes nothing.
void check_run_folder(const std::string& folder, EarlierRun earlier);

// A folder of checkpoints that a config names; both empty: they are in the run folder.
struct CheckpointDir {
  std::string named;  // as the config says
  std::string path;
};

// Checks, makes the folder, takes it for the job as long as the lock lives (73 when a living job has it), and discards
// the earlier run's own files (nothing else in the folder) where told to; in `checkpoints`, too, where the earlier
// run's config says that it saved there (73 when a living job saves there now).
[[nodiscard]] FolderLock prepare_run_folder(const std::string& folder, EarlierRun earlier, const std::string& job_id,
                                            const CheckpointDir& checkpoints = {});

}  // namespace dslaunch::launch
