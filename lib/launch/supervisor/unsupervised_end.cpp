#include "launch/supervisor/unsupervised_end.hpp"

#include <poll.h>
#include <unistd.h>

#include <string_view>

#include "base/format.hpp"
#include "base/log.hpp"
#include "launch/event_loop/poll_set.hpp"
#include "launch/supervisor/failure_summary.hpp"
#include "launch/supervisor/restart.hpp"
#include "launch/supervisor/run_metrics.hpp"
#include "launch/terminal/terminal.hpp"

namespace dslaunch::launch {
namespace {

// As far as a reader accepts it: there is no supervisor to take a further Ctrl-C.
void write_if_read(int fd, std::string_view text) {
  Terminal terminal(fd);
  terminal.write(text);
  while (terminal.num_pending() > 0) {
    PollSet polls;
    const size_t membership = polls.add(terminal.fd(), POLLOUT);
    polls.wait(Deadline::after(kUnsupervisedTimeout));
    if (!polls.ready(membership)) return;
    terminal.flush();
  }
}

}  // namespace

std::string document_of(const LaunchPlan& plan, const JobReport& report, LiveJob& live) {
  return summary_json(plan, report,
                      plan.kind == JobKind::kRun ? last_metrics_line(live.reads(), plan.run_dir) : std::string());
}

int UnsupervisedEnd::because(const LaunchPlan& plan, const DescribedError& error) {
  dismiss_nodes(context_.gathered.links, failure_message(error));
  JobReport report;
  report.error = error.text;
  report.records = records_of(plan);
  report.outcome.exit_code = to_int(error.code);
  // Reported before the record is closed: a user who waits for the start of a detached job reads the error in the
  // console, after the job's own messages.
  await_files(plan.kind);
  log::write(log::Level::kError, error.text);
  live_.on_end(report.outcome.exit_code, error.text);
  if (context_.writes_document()) write_if_read(STDOUT_FILENO, document_of(plan, report, live_));
  return report.outcome.exit_code;
}

// For what the job has written so far, unless a stop is requested, or the files stall.
void UnsupervisedEnd::await_files(JobKind kind) {
  FileThread& files = live_.files();
  for (const Deadline due = Deadline::after(FileThread::kTimeout); !files.idle() && !due.passed();) {
    files.wake_when_idle();
    PollSet polls;
    polls.add(signals_.fd(), POLLIN);
    polls.add(files.fd(), POLLIN);
    polls.wait(due);
    for (const auto& error : live_.take_errors()) log::warning("{}", error);
    if (const auto signal = signals_.take(); signal && is_stop_signal(*signal, kind)) return;
  }
}

int UnsupervisedEnd::before_attempt(const LaunchPlan& plan, int signal) {
  JobReport report;
  report.reason = reason_of(signal);
  report.records = records_of(plan);
  report.outcome = decide_outcome(report.records, plan.kind, report.reason, 0);
  report.summary = format_summary(plan, report);
  if (plan.restart_count > 0) {
    report.summary = fmt::format("dslaunch: {}\n", no_restart_because(report.reason)) + report.summary;
  }
  live_.files().wait(Deadline::after(kUnsupervisedTimeout));  // the job's own messages come first
  if (live_.console() != nullptr && !context_.options.detach) live_.console()->append(report.summary);
  live_.on_end(report.outcome.exit_code, recorded_cause(plan, report));
  write_if_read(STDERR_FILENO, report.summary);
  if (context_.writes_document()) write_if_read(STDOUT_FILENO, document_of(plan, report, live_));
  return report.outcome.exit_code;
}

}  // namespace dslaunch::launch
