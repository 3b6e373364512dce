// Where our own programs lie.
#pragma once
#include <optional>
#include <string>

namespace dslaunch::launch {

// The running dslaunch, absolute: what it was called when this was first asked. An upgrade may put another program
// there while a job runs, which then serves the job's next attempt. So ask early.
const std::string& own_program();

// dsworker beside it. Throws UserError(69) when it is not there.
std::string worker_program();

// The LD_LIBRARY_PATH with which dsworker finds LibTorch in the folder that DSLAUNCH_TORCH_LIB names, ahead of where
// the build found it; `inherited` follows. Nothing when that variable is not set. Throws UserError(66) when the folder
// does not hold LibTorch.
std::optional<std::string> torch_library_path(const std::string& inherited);

}  // namespace dslaunch::launch
