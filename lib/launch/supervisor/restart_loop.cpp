#include "launch/supervisor/restart_loop.hpp"

#include <random>
#include <utility>

#include "base/bytes.hpp"
#include "base/format.hpp"
#include "base/wall_clock.hpp"
#include "launch/nodes/push.hpp"
#include "launch/process/programs.hpp"
#include "launch/supervisor/failure_summary.hpp"
#include "launch/supervisor/restart_signal_guard.hpp"
#include "launch/supervisor/run_metrics.hpp"
#include "launch/supervisor/supervisor.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;

// For the record of a requested end.
constexpr auto kStopRequestedFileTimeout = 10000ms;

// Losing a document or the ranks' output to a full disk fails the job too; the job's own failure takes precedence.
void report_lost_output(Supervisor& supervisor, JobReport& report) {
  if (!supervisor.output().files_keep_up()) {
    supervisor.output().warn(
        "the job's output files stopped accepting data: the end of the output may be missing there");
  }
  if (!supervisor.output().out().has_lost()) return;
  supervisor.output().print_line("cannot write all output to standard output: is its disk full?");
  if (report.outcome.exit_code == 0) report.outcome.exit_code = to_int(ExitCode::kIoError);
}

// A stop was requested before the restart that was due.
void end_instead(JobReport& report, const LaunchPlan& plan, StopReason reason) {
  report.reason = reason;
  report.outcome.exit_code = decide_outcome(records_of(plan), plan.kind, reason, 0).exit_code;
}

std::function<double()> random_numbers() {
  return [engine = std::minstd_rand(random_seed())]() mutable {
    return std::uniform_real_distribution<double>(0, 1)(engine);
  };
}

}  // namespace

RestartLoop::RestartLoop(LaunchPlan first, LaunchContext& context, JobPlanner& planner, LiveJob& live,
                         SignalInbox& signals)
    : plan_(std::move(first)),
      context_(context),
      planner_(planner),
      live_(live),
      signals_(signals),
      time_limit_(plan_.timeout ? Deadline::after(*plan_.timeout) : Deadline::never()),
      backoff_(random_numbers()),
      unsupervised_end_(context, live, signals),
      events_(live.files()) {}

int RestartLoop::run() {
  try {
    return run_all();
  } catch (const std::exception& error) {
    return unsupervised_end_.because(plan_, described(error));
  }
}

int RestartLoop::run_all() {
  std::optional<JobReport> end;
  do {
    make_ready();
    if (plan_.restart_count > 0) live_.on_attempt(plan_);
    end = attempt();
  } while (!end);
  const bool stop_requested = end->reason != StopReason::kNone || end->late_reason != StopReason::kNone;
  live_.on_end(end->outcome.exit_code, recorded_cause(plan_, *end),
               stop_requested ? kStopRequestedFileTimeout : std::chrono::milliseconds(FileThread::kTimeout));
  return end->outcome.exit_code;
}

// The preparation of an attempt before it has a supervisor.
void RestartLoop::make_ready() {
  if (plan_.restart_count == 0 && !plan_.reach.push) return;
  // Its thread uses a copy of the plan: plan_ may change meanwhile.
  RestartSignalGuard between(signals_, [this, plan = plan_](int signal) -> std::optional<int> {
    if (!is_stop_signal(signal, plan.kind)) return std::nullopt;
    planner_.leave();
    return unsupervised_end_.before_attempt(plan, signal);
  });
  if (plan_.restart_count > 0) {
    context_.gather(time_limit_);
    planner_.prepare(plan_);
  }
  if (plan_.reach.push) push_programs(plan_, own_program());
}

// One attempt under its own supervisor. Returns its report; empty if another attempt follows, whose plan is then plan_.
std::optional<JobReport> RestartLoop::attempt() {
  SupervisorOptions how = context_.supervisor_options();
  how.live = &live_;
  how.time_limit = time_limit_;
  how.moves_logs = [this] { return planner_.moves_logs(); };
  Supervisor supervisor(plan_, std::move(how));
  events_.launched(plan_);
  JobReport report = supervisor.run();
  attempt_ended_ = seconds_since_1970();
  planner_.attempt_ended(report);
  const RestartDecision decision = conclude(supervisor, report);
  StopReason instead = decision.instead;
  if (decision.restart) {
    context_.leave_out(decision.without);
    if (auto next = plan_again(supervisor)) {
      instead = leave_attempt(supervisor, report, decision.wait);
      if (instead == StopReason::kNone) {
        events_.ended(plan_, report, /*restarts=*/true, last_step_, attempt_ended_);
        plan_ = std::move(*next);
        return std::nullopt;
      }
      supervisor.output().print_line(no_restart_because(instead));
    }
  }
  if (instead != StopReason::kNone) end_instead(report, plan_, instead);
  finish(supervisor, report);
  return report;
}

// Reports how an attempt ended, and decides whether another one follows.
RestartDecision RestartLoop::conclude(Supervisor& supervisor, JobReport& report) {
  if (!report.summary.empty()) supervisor.output().print_text(report.summary);
  if (plan_.kind == JobKind::kRun) last_step_ = last_recorded_step(live_.reads(), plan_.run_dir);
  report.late_reason = supervisor.shutdown().late_reason();
  auto decision =
      decide_restart(report, plan_.kind, context_.options, plan_.restart_count, static_cast<int>(plan_.nodes.size()));
  if (decision.restart) decision.wait = wait_after(report);
  if (decision.wait > 0ms) decision.text = restart_after(decision.wait, decision.text);
  if (!decision.text.empty()) supervisor.output().info(decision.text);
  return decision;
}

// How long the next attempt has to wait.
std::chrono::milliseconds RestartLoop::wait_after(const JobReport& report) {
  AttemptProgress progress{.run_time = report.run_time, .last_step = {}};
  progress.last_step = last_step_;
  return backoff_.next(progress);
}

// Empty, with a message why, if the job is impossible on the remaining hosts.
std::optional<LaunchPlan> RestartLoop::plan_again(Supervisor& supervisor) {
  try {
    LaunchPlan next = planner_.plan(context_.hosts, plan_.restart_count + 1);
    next.job_id = plan_.job_id;
    next.job_dir = plan_.job_dir;
    next.output = plan_.output;
    next.append_logs = true;
    return next;
  } catch (const std::exception& error) {
    supervisor.output().print_line(fmt::format("no restart: {}", described(error).text));
    return std::nullopt;
  }
}

// Waits for the next attempt, and ends this one for nodes and readers. Not kNone: a stop was requested meanwhile.
StopReason RestartLoop::leave_attempt(Supervisor& supervisor, const JobReport& report, std::chrono::milliseconds wait) {
  const StopReason instead = supervisor.pause_before_restart(wait);
  if (instead != StopReason::kNone) return instead;
  supervisor.shutdown().dismiss({.exit_code = report.outcome.exit_code, .again = true, .summary = report.summary});
  supervisor.shutdown().drain_output();
  return supervisor.shutdown().late_reason();
}

void RestartLoop::finish(Supervisor& supervisor, JobReport& report) {
  events_.ended(plan_, report, /*restarts=*/false, last_step_, attempt_ended_);
  const std::string next = planner_.what_next(plan_, report, live_.on_record(), last_step_);
  if (!next.empty()) supervisor.output().info(next);
  supervisor.shutdown().dismiss({.exit_code = report.outcome.exit_code, .again = false, .summary = report.summary});
  if (context_.writes_document()) supervisor.output().print(document_of(plan_, report, live_));
  supervisor.shutdown().drain_output();
  report_lost_output(supervisor, report);
  supervisor.shutdown().drain_output();
  supervisor.shutdown().ignore_signals();
}

}  // namespace dslaunch::launch
