#include "launch/attempts.hpp"

#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <string_view>

#include "base/described_error.hpp"
#include "base/format.hpp"
#include "launch/between_attempts.hpp"
#include "launch/job_story.hpp"
#include "launch/poll_set.hpp"
#include "launch/programs.hpp"
#include "launch/push.hpp"
#include "launch/restart.hpp"
#include "launch/supervisor.hpp"
#include "launch/terminal.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;

// Between two attempts: for readers and files that take nothing.
constexpr auto kReaderPatience = 2000ms;

// Tells how an attempt ended, and decides whether there is another one.
RestartDecision conclude(Supervisor& supervisor, const LaunchPlan& plan, JobReport& report,
                         const LaunchOptions& options, int restart) {
  if (!report.story.empty()) supervisor.output().tell(report.story);
  report.late_reason = supervisor.late_reason();
  auto decision = decide_restart(report, plan.kind, options, restart, static_cast<int>(plan.nodes.size()));
  if (!decision.text.empty()) supervisor.output().say(decision.text);
  return decision;
}

// A document or the ranks' output on a full disk is a failure of the job too, though never more than its own.
void tell_lost_output(Supervisor& supervisor, JobReport& report) {
  if (!supervisor.output().files_keep_up()) {
    supervisor.output().warn(
        "the files that the job's output goes to take nothing any more: its end may be missing there");
  }
  if (!supervisor.output().out().has_lost()) return;
  supervisor.output().say("standard output did not take all that was written: is its disk full?");
  if (report.outcome.exit_code == 0) report.outcome.exit_code = to_int(ExitCode::kIoError);
}

void finish(Supervisor& supervisor, const LaunchPlan& plan, JobReport& report, const LaunchOptions& options) {
  if (options.json && !options.detach) {
    supervisor.output().print(story_json(plan, report));
  }
  supervisor.dismiss({.exit_code = report.outcome.exit_code, .again = false, .story = report.story});
  supervisor.drain_output();
  tell_lost_output(supervisor, report);
  supervisor.drain_output();
  supervisor.ignore_signals();
}

// The next attempt's plan; empty, with a word why, where the job is impossible on the hosts that are left.
std::optional<LaunchPlan> plan_again(JobMaker& maker, JobField& field, Supervisor& supervisor, const LaunchPlan& last,
                                     int restart) {
  try {
    LaunchPlan plan = maker.plan(field.hosts, restart);
    plan.job_id = last.job_id;
    plan.job_folder = last.job_folder;
    plan.output = last.output;
    plan.append_logs = true;
    return plan;
  } catch (const std::exception& error) {
    supervisor.output().say(fmt::format("no restart: {}", described(error).text));
    return std::nullopt;
  }
}

// One line for the job's record.
std::string cause_of(const LaunchPlan& plan, const JobReport& report) {
  std::string cause = tell_cause(plan, report);
  if (!cause.empty()) return cause;
  if (report.hosts_ended_it) {
    const auto& [host, failure] = report.host_failures.front();
    return fmt::format("{} failed: {}: {}", host, failure.phase, failure.text);
  }
  std::string line = report.story.substr(0, report.story.find('\n'));
  constexpr std::string_view kSpeaker = "dslaunch: ";
  return line.starts_with(kSpeaker) ? line.substr(kSpeaker.size()) : line;
}

struct Attempt {
  JobReport report;
  std::optional<LaunchPlan> next;  // empty where this was the last
};

// Somebody asked for an end before the restart that was due.
void end_instead(JobReport& report, const LaunchPlan& plan, StopReason reason) {
  report.reason = reason;
  report.outcome.exit_code = decide_outcome(records_of(plan), plan.kind, reason, 0).exit_code;
}

// One attempt, under a supervisor of its own.
Attempt run_attempt(const LaunchPlan& plan, JobField& field, const LaunchOptions& options, JobMaker& maker,
                    LiveJob& live, Deadline time_limit) {
  SupervisorOptions how = field.supervisor_options(options);
  how.live = &live;
  how.time_limit = time_limit;
  Supervisor supervisor(plan, std::move(how));
  Attempt attempt{supervisor.run(), std::nullopt};
  const int restart = plan.restart_count;
  const RestartDecision decision = conclude(supervisor, plan, attempt.report, options, restart);
  StopReason instead = decision.instead;
  if (decision.restart) {
    field.leave_out(decision.without);
    attempt.next = plan_again(maker, field, supervisor, plan, restart + 1);
  }
  if (attempt.next) {
    supervisor.dismiss({.exit_code = attempt.report.outcome.exit_code, .again = true, .story = attempt.report.story});
    supervisor.drain_output();
    instead = supervisor.late_reason();
    if (instead == StopReason::kNone) return attempt;
    supervisor.output().say(no_restart_because(instead));
    attempt.next.reset();
  }
  if (instead != StopReason::kNone) end_instead(attempt.report, plan, instead);
  finish(supervisor, plan, attempt.report, options);
  return attempt;
}

// As far as somebody reads it: there is no supervisor that would take a further Ctrl-C.
void write_if_read(int fd, std::string_view text) {
  Terminal terminal(fd);
  terminal.write(text);
  while (terminal.num_pending() > 0) {
    PollSet polls;
    const size_t place = polls.add(terminal.fd(), POLLOUT);
    polls.wait(Deadline::after(kReaderPatience));
    if (!polls.ready(place)) return;
    terminal.flush();
  }
}

// The end of a job whose next attempt was not to begin: told and put on record, as that of an attempt which was stopped
// before its ranks had started. Its exit code.
int end_before_attempt(const LaunchPlan& plan, int signal, const LaunchOptions& options, LiveJob& live) {
  JobReport report;
  report.reason = reason_of(signal);
  report.records = records_of(plan);
  report.outcome = decide_outcome(report.records, plan.kind, report.reason, 0);
  report.story = tell_story(plan, report);
  if (plan.restart_count > 0) {
    report.story = fmt::format("dslaunch: {}\n", no_restart_because(report.reason)) + report.story;
  }
  live.files().wait(Deadline::after(kReaderPatience));  // what the job said comes first
  if (live.console() != nullptr && !options.detach) live.console()->append(report.story);
  live.on_end(report.outcome.exit_code, cause_of(plan, report));
  write_if_read(STDERR_FILENO, report.story);
  if (options.json && !options.detach) write_if_read(STDOUT_FILENO, story_json(plan, report));
  return report.outcome.exit_code;
}

// What an attempt needs before it has a supervisor.
void make_ready(LaunchPlan& plan, JobField& field, const LaunchOptions& options, JobMaker& maker, LiveJob& live,
                SignalInbox& signals, Deadline time_limit) {
  if (plan.restart_count == 0 && !plan.reach.push) return;
  BetweenAttempts between(signals, [&, plan](int signal) -> std::optional<int> {
    if (!asks_for_end(signal, plan.kind)) return std::nullopt;
    maker.leave();
    return end_before_attempt(plan, signal, options, live);
  });
  if (plan.restart_count > 0) {
    field.gather(options, time_limit);
    maker.prepare(plan);
  }
  if (plan.reach.push) push_programs(plan, own_program());
}

}  // namespace

int run_attempts(LaunchPlan plan, JobField& field, const LaunchOptions& options, JobMaker& maker, LiveJob& live,
                 SignalInbox& signals) {
  const Deadline time_limit = plan.timeout ? Deadline::after(*plan.timeout) : Deadline::never();
  for (;;) {
    make_ready(plan, field, options, maker, live, signals, time_limit);
    if (plan.restart_count > 0) live.on_attempt(plan);
    Attempt attempt = run_attempt(plan, field, options, maker, live, time_limit);
    if (!attempt.next) {
      live.on_end(attempt.report.outcome.exit_code, cause_of(plan, attempt.report));
      return attempt.report.outcome.exit_code;
    }
    plan = std::move(*attempt.next);
  }
}

}  // namespace dslaunch::launch
