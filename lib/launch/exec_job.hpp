// `dslaunch exec`: any program with torchrun's environment.
#pragma once
#include "launch/launch_options.hpp"
#include "launch/launch_plan.hpp"

namespace dslaunch::launch {

// Looks at hostfile and devices, changes nothing. Throws UserError.
LaunchPlan plan_exec(const ExecOptions& options);

// The whole command. The exit code of dslaunch.
int exec_job(const ExecOptions& options);

}  // namespace dslaunch::launch
