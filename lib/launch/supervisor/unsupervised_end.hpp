// The end of a job for which there is no supervisor: its next attempt cannot begin, must not begin, or the supervisor
// could not continue. Reports the end to the user and on the job's record. One thread at a time.
#pragma once
#include "base/described_error.hpp"
#include "launch/event_loop/signal_inbox.hpp"
#include "launch/jobs/live_job.hpp"
#include "launch/plan/launch_plan.hpp"
#include "launch/supervisor/launch_context.hpp"

namespace dslaunch::launch {

// For readers and files that accept nothing while there is no supervisor.
inline constexpr std::chrono::milliseconds kUnsupervisedTimeout{2000};

// The job's JSON document, with the run's last metrics. Waits for them for 2 s at most.
std::string document_of(const LaunchPlan& plan, const JobReport& report, LiveJob& live);

class UnsupervisedEnd {
 public:
  // All outlive this.
  UnsupervisedEnd(LaunchContext& context, LiveJob& live, SignalInbox& signals)
      : context_(context), live_(live), signals_(signals) {}

  // An attempt could not begin, or the supervisor cannot continue it. Returns the exit code.
  int because(const LaunchPlan& plan, const DescribedError& error);
  // A signal asks for the end before the next attempt has begun: reported and recorded as an attempt that was stopped
  // before its ranks had started. Returns the exit code.
  int before_attempt(const LaunchPlan& plan, int signal);

 private:
  void await_files(JobKind kind);

  LaunchContext& context_;
  LiveJob& live_;
  SignalInbox& signals_;
};

}  // namespace dslaunch::launch
