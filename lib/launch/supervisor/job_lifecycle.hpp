// The lifecycle of a job from its start to its end: which requests to stop came and how often, what failed first, how
// long pending work may take. Events go in with the time, orders come out. Pure; the supervisor carries the orders out.
#pragma once
#include <chrono>
#include <optional>
#include <string>

#include "base/deadline.hpp"
#include "launch/jobs/job_requests.hpp"
#include "launch/jobs/job_states.hpp"
#include "launch/plan/launch_plan.hpp"
#include "launch/supervisor/job_outcome.hpp"
#include "launch/supervisor/signal_deduplicator.hpp"

namespace dslaunch::launch {

struct JobOrder {
  std::string message;      // to the user, before anything else; empty: nothing
  bool begins_end = false;  // this order begins the job's end
  JobAction action = JobAction::kNone;
  std::chrono::milliseconds grace{0};  // of kStop
};

class JobLifecycle {
 public:
  using Time = Deadline::Clock::time_point;

  // `time_limit`: from the plan's timeout, which all attempts of the job share.
  JobLifecycle(const LaunchPlan& plan, Deadline time_limit);

  JobState state() const { return state_; }
  // The job's end has not begun.
  bool end_not_begun() const;
  // Why the job was ended from outside, if it was; and which request came while a failure was ending it, or later.
  StopReason reason() const { return reason_; }
  StopReason late_reason() const { return late_reason_; }
  // The exit code of the first agent that could not do its part; 0: none.
  int agent_error() const { return agent_error_; }
  // A further Ctrl-C or Ctrl-\ while all ranks were being killed: slow readers are not waited for.
  bool discards_output() const { return discards_output_; }
  // The user at the keyboard wants the end at once: a second Ctrl-C, or Ctrl-\.
  bool is_hurried() const { return is_hurried_; }
  // A stop was requested, possibly only while a failure was already ending the job.
  bool stop_requested() const { return reason_ != StopReason::kNone || late_reason_ != StopReason::kNone; }

  JobOrder handle_event(JobEvent event, Time now);
  // Records an agent's error. While the job is already ending, such an error is a consequence and not recorded, unless
  // the job ends because ranks lost a peer and none has failed: a dead host is known by its silence only, later than by
  // the ends of its connections to other hosts.
  void record_agent_error(int exit_code);
  // For a failure that the agent itself reports.
  JobOrder agent_failed(SignalSource agent, int exit_code, Time now);
  // For a signal that asks for an end (see is_stop_signal). Empty: the signal repeats one already taken. Call
  // signal_handled after carrying the order out: in a late loop, the remaining copies of the signal are already
  // waiting.
  std::optional<JobOrder> take_signal(int signal, SignalSource from, Time now);
  void signal_handled(int signal, SignalSource from, Time now);
  JobOrder take_stop(const StopRequest& stop, Time now);
  // For a signal after the attempt: it does not change this attempt, but may change what comes next.
  void take_late_signal(int signal);
  // The same while no output is written: there is no slow reader to skip.
  void take_signal_in_pause(int signal);

  // The order that a deadline requires; call until empty.
  std::optional<JobOrder> due(Time now);
  // When to call due() again.
  Deadline next_due() const;

 private:
  JobOrder end_because(StopReason reason, const std::string& text, JobEvent event, Time now);
  void record_late_reason(StopReason reason);
  bool nothing_to_end() const;
  void expect_end(std::chrono::milliseconds grace, Time now);

  JobKind kind_;
  std::optional<std::chrono::milliseconds> timeout_;
  std::chrono::milliseconds grace_;
  JobState state_ = JobState::kStarting;
  StopReason reason_ = StopReason::kNone, late_reason_ = StopReason::kNone;
  int agent_error_ = 0;
  bool root_cause_is_missing_ = false;
  bool discards_output_ = false, is_hurried_ = false;
  InterruptDeduplicator interrupts_;
  Deadline time_limit_, root_cause_due_ = Deadline::never(), overdue_ = Deadline::never();
};

}  // namespace dslaunch::launch
