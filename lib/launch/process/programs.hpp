// The paths of dslaunch's own programs.
#pragma once
#include <optional>
#include <string>

namespace dslaunch::launch {

// The running dslaunch, absolute: its path when first called. An upgrade may replace the file while a job runs; the
// job's next attempt then runs the new program. So call this early.
const std::string& own_program();

// dsworker beside it. Throws UserError(69) when it is missing.
std::string worker_program();

// The LD_LIBRARY_PATH with which dsworker finds LibTorch in the directory that DSLAUNCH_TORCH_LIB names, ahead of the
// build's own path; `inherited` follows. Nothing when that variable is not set. Throws UserError(66) when the directory
// does not hold LibTorch.
std::optional<std::string> torch_library_path(const std::string& inherited);

}  // namespace dslaunch::launch
