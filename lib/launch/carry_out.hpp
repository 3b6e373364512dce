// From options to the end of a job, with its restarts: what `run` and `exec` have in common.
#pragma once
#include "launch/job_maker.hpp"
#include "launch/launch_options.hpp"

namespace dslaunch::launch {

// The exit code of dslaunch. On a node of --no_ssh other than the first: its part of the job.
int carry_out(const LaunchOptions& options, JobMaker& maker);

}  // namespace dslaunch::launch
