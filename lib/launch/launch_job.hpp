// From options to the end of a job, with its restarts: what `run` and `exec` have in common.
#pragma once
#include "launch/launch_options.hpp"
#include "launch/supervisor/job_planner.hpp"

namespace dslaunch::launch {

// How much this process says, by --quiet and --verbose. To be called before anything may be said.
void set_log_level(const LaunchOptions& options);

// The exit code of dslaunch. On a node of --no_ssh other than the first: its part of the job.
int launch_job(const LaunchOptions& options, JobPlanner& planner);

}  // namespace dslaunch::launch
