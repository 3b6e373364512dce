// What `run` and `exec` have in common: from options to the plan's frame, and from the plan to the job's end.
#pragma once
#include "launch/launch_options.hpp"
#include "launch/launch_plan.hpp"

namespace dslaunch::launch {

// Everything but the kind, the command and the run folder. Looks at hostfile and devices, changes nothing. Throws
// UserError. `need_cuda_build`: see choose_device; `cuda_rule`: how GPU ranks get their devices.
LaunchPlan plan_job(const LaunchOptions& options, bool need_cuda_build, DeviceRule cuda_rule);

// The plan on standard output (--dry_run).
int print_plan(const LaunchPlan& plan, const LaunchOptions& options);

// Carries it out. The exit code of dslaunch.
int launch(const LaunchPlan& plan, const LaunchOptions& options);

}  // namespace dslaunch::launch
