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

// Checks, makes the folder, takes it for the job as long as the lock lives (73 when a living job has it), and discards
// the earlier run's own files (nothing else in the folder) where told to.
[[nodiscard]] FolderLock prepare_run_folder(const std::string& folder, EarlierRun earlier, const std::string& job_id);

}  // namespace dslaunch::launch
