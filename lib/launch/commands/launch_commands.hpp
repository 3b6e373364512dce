// The commands `run` and `exec`, from their options to the exit code of dslaunch.
#pragma once
#include "launch/plan/launch_options.hpp"

namespace dslaunch::launch {

// `dslaunch run`: checks everything that can be checked before a rank starts, and launches the workers.
int run_job(const RunOptions& run);

// `dslaunch exec`: any program with torchrun's environment.
int exec_job(const ExecOptions& options);

}  // namespace dslaunch::launch
