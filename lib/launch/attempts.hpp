// A job's attempts one after the other: each under a supervisor of its own, and what lies between two of them.
#pragma once
#include "launch/job_field.hpp"
#include "launch/job_maker.hpp"
#include "launch/jobs/live_job.hpp"
#include "launch/launch_options.hpp"
#include "launch/launch_plan.hpp"
#include "launch/signal_inbox.hpp"

namespace dslaunch::launch {

// Until one is the last. The exit code, which is on record by then. `signals`: those that come while there is no
// supervisor. Throws what keeps an attempt from starting.
int run_attempts(LaunchPlan plan, JobField& field, const LaunchOptions& options, JobMaker& maker, LiveJob& live,
                 SignalInbox& signals);

}  // namespace dslaunch::launch
