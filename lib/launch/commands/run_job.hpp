// `dslaunch run`: checks everything that can be checked before a rank starts, and launches the workers.
#pragma once
#include "launch/plan/launch_options.hpp"

namespace dslaunch::launch {

// The whole command. The exit code of dslaunch.
int run_job(const RunOptions& run);

}  // namespace dslaunch::launch
