// The folder that a run writes into.
#pragma once
#include <string>

namespace dslaunch::launch {

enum class EarlierRun { kRefuse, kKeep, kDiscard };  // without an option; --resume; --overwrite

// Does the folder hold a run: a step's metrics or a checkpoint? What an attempt that never began left is none.
bool holds_run(const std::string& folder);

// Throws UserError(73) when the folder holds a run that `earlier` refuses, or cannot be used. Changes nothing.
void check_run_folder(const std::string& folder, EarlierRun earlier);

// Checks, makes the folder, and discards the earlier run's own files (nothing else in the folder) where told to.
void prepare_run_folder(const std::string& folder, EarlierRun earlier);

}  // namespace dslaunch::launch
