// The common part of `run` and `exec` before a job starts: builds the plan's frame from options and hosts.
#pragma once
#include "launch/plan/hosts.hpp"
#include "launch/plan/launch_options.hpp"
#include "launch/plan/launch_plan.hpp"

namespace dslaunch::launch {

// Fills in everything except the kind, the command and the run directory. Throws UserError. `cuda_rule`: how GPU ranks
// get their devices.
LaunchPlan plan_job(const LaunchOptions& options, const ResolvedHosts& hosts, DeviceRule cuda_rule);

// Prints the plan to standard output (--dry_run).
int print_plan(LaunchPlan plan, const LaunchOptions& options);

}  // namespace dslaunch::launch
