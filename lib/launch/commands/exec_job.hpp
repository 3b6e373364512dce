// `dslaunch exec`: any program with torchrun's environment.
#pragma once
#include "launch/plan/launch_options.hpp"

namespace dslaunch::launch {

// The whole command. The exit code of dslaunch.
int exec_job(const ExecOptions& options);

}  // namespace dslaunch::launch
