// A job's entry among this user's jobs, made right before it starts; and what the command that was typed with --detach
// says of its start.
#pragma once
#include <memory>

#include "base/unique_fd.hpp"
#include "launch/jobs/detach.hpp"
#include "launch/jobs/live_job.hpp"
#include "launch/launch_options.hpp"
#include "launch/plan/launch_plan.hpp"

namespace dslaunch::launch {

// Makes the job's folder and clears away those of old jobs. A folder that cannot be made is a line of warning; only
// --detach needs one (73): without it nobody could see or stop the job. A detached supervisor speaks into the job's
// console from here on. `starter`: of detach(), taken over; not valid in the foreground.
std::unique_ptr<LiveJob> register_job(LaunchPlan& plan, const LaunchOptions& options, UniqueFd& starter);

// In the command that was typed: what became of the start, on the terminal. Its exit code.
int tell_start(const Started& started, const LaunchOptions& options);

}  // namespace dslaunch::launch
