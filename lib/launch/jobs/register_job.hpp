// Creates a job's entry among this user's jobs right before the job starts; and, in the command that the user typed
// with --detach, reports its start.
#pragma once
#include <memory>

#include "base/unique_fd.hpp"
#include "launch/jobs/detach.hpp"
#include "launch/jobs/live_job.hpp"
#include "launch/plan/launch_options.hpp"
#include "launch/plan/launch_plan.hpp"

namespace dslaunch::launch {

// Creates the job's directory and removes those of old jobs. A directory that cannot be created is only a warning,
// except with --detach (73): without it nobody could see or stop the job. From here on a detached supervisor writes its
// output to the job's console. `starter`: from detach(), moved from; not valid in the foreground.
std::unique_ptr<LiveJob> register_job(LaunchPlan& plan, const LaunchOptions& options, UniqueFd& starter);

// In the command that the user typed: reports the result of the start on the terminal. Returns its exit code.
int print_start(const Started& started, const LaunchOptions& options);

}  // namespace dslaunch::launch
