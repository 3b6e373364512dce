#include "launch/supervisor/job_lifecycle.hpp"

#include <algorithm>
#include <csignal>

#include "base/exit_code.hpp"
#include "base/format.hpp"
#include "spawn/exit_cause.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;

// A rank that lost a peer notices within moments of the peer's end; the kernel reports that end no later.
constexpr auto kRootCauseTimeout = 500ms;
// For an agent, beyond the ranks' own grace: to clean up and report it.
constexpr auto kAgentSlack = 5000ms;

// True once for each deadline that was set.
bool take_if_passed(Deadline& deadline, JobLifecycle::Time now) {
  if (now < deadline.when()) return false;
  deadline = Deadline::never();
  return true;
}

}  // namespace

JobLifecycle::JobLifecycle(const LaunchPlan& plan, Deadline time_limit)
    : kind_(plan.kind), timeout_(plan.timeout), grace_(plan.grace), time_limit_(time_limit) {}

bool JobLifecycle::end_not_begun() const {
  return state_ == JobState::kStarting || state_ == JobState::kRunning || state_ == JobState::kAwaitingRootCause;
}

// All ranks have been told to end, without a grace period.
bool JobLifecycle::nothing_to_end() const {
  return state_ == JobState::kKilling || state_ == JobState::kDone;
}

JobOrder JobLifecycle::handle_event(JobEvent event, Time now) {
  const bool end_had_not_begun = end_not_begun();
  const JobStep step = next_step(state_, event);
  state_ = step.to;
  if (event == JobEvent::kNoRootCause && step.action == JobAction::kStop) root_cause_is_missing_ = true;
  if (event == JobEvent::kRankFailed) root_cause_is_missing_ = false;
  JobOrder order{.message = {}, .begins_end = end_had_not_begun && !end_not_begun(), .action = step.action};
  if (step.action == JobAction::kAwaitRootCause) root_cause_due_ = Deadline::at(now + kRootCauseTimeout);
  if (step.action == JobAction::kStop) order.grace = grace_;
  if (step.action == JobAction::kStop || step.action == JobAction::kKill) expect_end(order.grace, now);
  return order;
}

void JobLifecycle::expect_end(std::chrono::milliseconds grace, Time now) {
  overdue_ = Deadline::at(now + grace + kAgentSlack);
}

void JobLifecycle::record_agent_error(int exit_code) {
  if (agent_error_ == 0 && (end_not_begun() || root_cause_is_missing_)) agent_error_ = exit_code;
}

JobOrder JobLifecycle::agent_failed(SignalSource agent, int exit_code, Time now) {
  record_agent_error(exit_code);
  // A signal ended the agent, perhaps from a scheduler that signals this process too.
  if (exit_code == to_int(ExitCode::kRunAgain)) interrupts_.take(agent, now);
  return handle_event(JobEvent::kAgentFailed, now);
}

std::optional<JobOrder> JobLifecycle::take_signal(int signal, SignalSource from, Time now) {
  if (signal == SIGINT && !interrupts_.take(from, now)) return std::nullopt;
  const bool by_keyboard = signal == SIGINT || signal == SIGQUIT;
  if (by_keyboard) discards_output_ = nothing_to_end();
  if (by_keyboard && (signal == SIGQUIT || !end_not_begun())) is_hurried_ = true;
  if (signal == SIGQUIT) {
    return end_because(StopReason::kQuit, "SIGQUIT (Ctrl-\\): ending all ranks at once", JobEvent::kEndNow, now);
  }
  if (signal == SIGINT) {
    return end_because(
        StopReason::kInterrupt,
        end_not_begun() ? "stopping the ranks (Ctrl-C again ends them at once)" : "ending all ranks at once",
        JobEvent::kInterrupt, now);
  }
  return end_because(StopReason::kTerminate, fmt::format("{}: stopping the ranks", spawn::signal_name(signal)),
                     JobEvent::kTerminate, now);
}

void JobLifecycle::signal_handled(int signal, SignalSource from, Time now) {
  if (signal == SIGINT) interrupts_.handled(from, now);
}

JobOrder JobLifecycle::take_stop(const StopRequest& stop, Time now) {
  const bool again = state_ == JobState::kStopping;
  if (stop.grace) grace_ = *stop.grace;
  if (stop.now) {
    return end_because(StopReason::kCommand, "'dslaunch stop --now': ending all ranks at once", JobEvent::kEndNow, now);
  }
  JobOrder order = end_because(StopReason::kCommand, "'dslaunch stop': stopping the ranks", JobEvent::kTerminate, now);
  if (again && stop.grace) {
    order.action = JobAction::kStop;
    order.grace = grace_;
    expect_end(grace_, now);
  }
  return order;
}

// The first reason counts; a request that comes after a failure is only the late reason.
JobOrder JobLifecycle::end_because(StopReason reason, const std::string& text, JobEvent event, Time now) {
  const bool is_first = end_not_begun();
  if (is_first) reason_ = reason;
  if (reason_ == StopReason::kNone) record_late_reason(reason);
  JobOrder order = handle_event(event, now);
  if (is_first || reason == StopReason::kInterrupt || reason == StopReason::kQuit) order.message = text;
  return order;
}

void JobLifecycle::record_late_reason(StopReason reason) {
  if (late_reason_ == StopReason::kNone) late_reason_ = reason;
}

// The sender of such a late signal does not want to wait for slow readers either.
void JobLifecycle::take_late_signal(int signal) {
  if (signal != SIGUSR1 && signal != SIGUSR2) discards_output_ = true;
  take_signal_in_pause(signal);
}

void JobLifecycle::take_signal_in_pause(int signal) {
  if (is_stop_signal(signal, kind_)) record_late_reason(reason_of(signal));
}

std::optional<JobOrder> JobLifecycle::due(Time now) {
  if (take_if_passed(time_limit_, now)) {
    return end_because(StopReason::kTimeLimit,
                       fmt::format("the time limit of {} s has passed: stopping the ranks",
                                   static_cast<double>(timeout_->count()) / 1000.0),
                       JobEvent::kTimeLimit, now);
  }
  if (take_if_passed(root_cause_due_, now)) return handle_event(JobEvent::kNoRootCause, now);
  if (take_if_passed(overdue_, now)) return handle_event(JobEvent::kOverdue, now);
  return std::nullopt;
}

Deadline JobLifecycle::next_due() const {
  return std::min({time_limit_, root_cause_due_, overdue_});
}

}  // namespace dslaunch::launch
