// Runs a job's attempts one after the other, each under its own supervisor, and the work between two attempts. One
// thread, except for RestartSignalGuard.
#pragma once
#include <optional>

#include "base/deadline.hpp"
#include "launch/event_loop/signal_inbox.hpp"
#include "launch/jobs/live_job.hpp"
#include "launch/plan/launch_plan.hpp"
#include "launch/supervisor/job_planner.hpp"
#include "launch/supervisor/job_report.hpp"
#include "launch/supervisor/launch_context.hpp"
#include "launch/supervisor/launcher_events.hpp"
#include "launch/supervisor/restart.hpp"
#include "launch/supervisor/restart_backoff.hpp"
#include "launch/supervisor/unsupervised_end.hpp"

namespace dslaunch::launch {

class Supervisor;

class RestartLoop {
 public:
  // `first`: the plan of the first attempt. `signals`: receives signals while there is no supervisor. All outlive this.
  RestartLoop(LaunchPlan first, LaunchContext& context, JobPlanner& planner, LiveJob& live, SignalInbox& signals);

  // Until the last attempt has ended. The exit code, which is on record by then, also if something else ended the job.
  int run();

 private:
  int run_all();
  void make_ready();
  std::optional<JobReport> attempt();
  RestartDecision conclude(Supervisor& supervisor, JobReport& report);
  std::chrono::milliseconds wait_after(const JobReport& report);
  std::optional<LaunchPlan> plan_again(Supervisor& supervisor);
  StopReason leave_attempt(Supervisor& supervisor, const JobReport& report, std::chrono::milliseconds wait);
  void finish(Supervisor& supervisor, JobReport& report);

  LaunchPlan plan_;  // of the current attempt
  LaunchContext& context_;
  JobPlanner& planner_;
  LiveJob& live_;
  SignalInbox& signals_;
  const Deadline time_limit_;  // of all attempts together
  RestartBackoff backoff_;
  UnsupervisedEnd unsupervised_end_;
  LauncherEvents events_;
  double attempt_ended_ = 0;          // seconds since 1970
  std::optional<int64_t> last_step_;  // of a run, when its attempt has ended
};

}  // namespace dslaunch::launch
