// What `run` and `exec` have in common before a job starts: from options and hosts to the frame of a plan.
#pragma once
#include "launch/launch_options.hpp"
#include "launch/plan/hosts.hpp"
#include "launch/plan/launch_plan.hpp"

namespace dslaunch::launch {

// Everything but the kind, the command and the run folder. Throws UserError. `cuda_rule`: how GPU ranks get their
// devices.
LaunchPlan plan_job(const LaunchOptions& options, const ResolvedHosts& hosts, DeviceRule cuda_rule);

// The plan on standard output (--dry_run).
int print_plan(LaunchPlan plan, const LaunchOptions& options);

}  // namespace dslaunch::launch
