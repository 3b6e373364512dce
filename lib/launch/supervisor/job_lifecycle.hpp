// The course of a job from its start to its end: who asks for the end and how often, what went wrong first, how long
// what is under way may take. What happens goes in with the time, what is to be done about it comes out. Pure; the
// supervisor carries it out.
#pragma once
#include <chrono>
#include <optional>
#include <string>

#include "base/deadline.hpp"
#include "launch/jobs/job_requests.hpp"
#include "launch/plan/launch_plan.hpp"
#include "launch/supervisor/job_outcome.hpp"
#include "launch/supervisor/job_states.hpp"
#include "launch/supervisor/signal_echoes.hpp"

namespace dslaunch::launch {

struct JobOrder {
  std::string say;          // to the user, before anything else; empty: nothing
  bool begins_end = false;  // until now nothing had disturbed the job
  JobAction action = JobAction::kNone;
  std::chrono::milliseconds grace{0};  // of kStop
};

class JobLifecycle {
 public:
  using Time = Deadline::Clock::time_point;

  // `time_limit`: of the plan's timeout, which all attempts of the job share.
  JobLifecycle(const LaunchPlan& plan, Deadline time_limit);

  JobState state() const { return state_; }
  // Nothing is being ended yet.
  bool undisturbed() const;
  // Why the job was ended from outside, if it was; and who asked for it when a failure was ending it already, or later.
  StopReason reason() const { return reason_; }
  StopReason late_reason() const { return late_reason_; }
  // The exit code of the first agent that could not do its part; 0: none.
  int agent_error() const { return agent_error_; }
  // A further Ctrl-C or Ctrl-\ when all was being ended already: nobody waits for a slow reader.
  bool discards_output() const { return discards_output_; }
  // Somebody at the keyboard wants the end at once: a second Ctrl-C, or Ctrl-\.
  bool hurried() const { return hurried_; }
  // The end was asked for, if only when a failure was ending the job already.
  bool asked_for() const { return reason_ != StopReason::kNone || late_reason_ != StopReason::kNone; }

  JobOrder happen(JobEvent event, Time now);
  // What goes wrong with agents while the job is being ended already is a consequence, and no blame.
  void blame_agent(int exit_code);
  // It says so itself.
  JobOrder agent_failed(SignalPlace agent, int exit_code, Time now);
  // One that asks for an end (see asks_for_end). Empty: it belongs to one that was taken already. An order that was
  // carried out is to be followed by carried_out: a loop that is late finds the rest of a signal waiting.
  std::optional<JobOrder> take_signal(int signal, SignalPlace from, Time now);
  void carried_out(int signal, SignalPlace from, Time now);
  JobOrder take_stop(const AskStop& stop, Time now);
  // One that comes when the attempt is over: it changes nothing of it, but perhaps what comes next.
  void take_late_signal(int signal);
  // The same while nothing is written: no reader is to be spared.
  void take_signal_in_pause(int signal);

  // What the time itself asks for, one after the other until there is nothing.
  std::optional<JobOrder> due(Time now);
  // When to ask again.
  Deadline next_due() const;

 private:
  JobOrder end_because(StopReason reason, const std::string& text, JobEvent event, Time now);
  void note_late_reason(StopReason reason);
  bool nothing_to_end() const;
  void expect_end(std::chrono::milliseconds grace, Time now);

  JobKind kind_;
  std::optional<std::chrono::milliseconds> timeout_;
  std::chrono::milliseconds grace_;
  JobState state_ = JobState::kStarting;
  StopReason reason_ = StopReason::kNone, late_reason_ = StopReason::kNone;
  int agent_error_ = 0;
  bool discards_output_ = false, hurried_ = false;
  InterruptEchoes interrupts_;
  Deadline time_limit_, settled_ = Deadline::never(), overdue_ = Deadline::never();
};

}  // namespace dslaunch::launch
