// The paths of dslaunch's own programs.
#pragma once
#include <string>

namespace dslaunch::launch {

// The running dslaunch, absolute: its path when first called. An upgrade may replace the file while a job runs; the
// job's next attempt then runs the new program. So call this early.
const std::string& own_program();

// dsworker beside it. Throws UserError(69) when it is missing.
std::string worker_program();

}  // namespace dslaunch::launch
