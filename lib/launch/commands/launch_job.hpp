// From options to the end of a job, with its restarts: shared by `run` and `exec`.
#pragma once
#include "launch/plan/launch_options.hpp"
#include "launch/supervisor/job_planner.hpp"

namespace dslaunch::launch {

// The log level of this process, by --quiet and --verbose. Call before anything is logged.
void set_log_level(const LaunchOptions& options);

// The exit code of dslaunch. On a node of --no_ssh other than the first: its part of the job.
int launch_job(const LaunchOptions& options, JobPlanner& planner);

}  // namespace dslaunch::launch
