#include "launch/jobs/detach.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>

#include "base/error.hpp"
#include "base/exit_code.hpp"
#include "base/format.hpp"
#include "launch/event_loop/poll_set.hpp"
#include "launch/event_loop/signal_inbox.hpp"
#include "spawn/pipe.hpp"

namespace dslaunch::launch {
namespace {

// Smaller than PIPE_BUF: the write is atomic, so the reader gets all of it or nothing.
struct Report {
  pid_t supervisor = -1;
  int exit_code = 0;
  char job_id[128] = "";
};

bool read_report(int fd, Report& report) {
  ssize_t got;
  do {
    got = ::read(fd, &report, sizeof report);
  } while (got < 0 && errno == EINTR);
  return got == sizeof report;
}

bool write_report(int fd, const Report& report) {
  return ::write(fd, &report, sizeof report) == sizeof report;
}

SystemError no_supervisor(int error) {
  return {"fork", "the job's supervisor", error, ExitCode::kUnavailable};
}

// The supervisor is not our child, so its exit status is not available. 0: it was killed before it had reported its
// pid.
UserError killed_supervisor(pid_t supervisor) {
  const auto who = supervisor == 0 ? std::string() : fmt::format(" (pid {})", supervisor);
  return {ExitCode::kUnavailable,
          fmt::format("the job's supervisor{} was killed before the job had started, and its ranks with it: the "
                      "kernel's log (dmesg) shows whether memory ran out, 'dslaunch jobs' whether the job is on record",
                      who)};
}

// The first report holds the supervisor's pid, the second the result of the start.
Started await_start(SignalInbox& signals, UniqueFd reports, pid_t between) {
  int status = 0;
  ::waitpid(between, &status, 0);
  Report report;
  if (!read_report(reports.get(), report)) {
    if (WIFEXITED(status) && WEXITSTATUS(status) > 0) throw no_supervisor(WEXITSTATUS(status));
    throw killed_supervisor(0);
  }
  pid_t supervisor = report.supervisor;
  int sent = 0;  // the last signal forwarded to the supervisor
  for (;;) {
    PollSet polls;
    polls.add(signals.fd(), POLLIN);
    size_t index = polls.add(reports.get(), POLLIN);
    polls.wait(Deadline::never());
    while (auto signal = signals.take()) {
      if (::kill(supervisor, *signal) == 0) sent = *signal;
    }
    if (!polls.ready(index)) continue;
    signals.ignore_from_now_on();
    if (read_report(reports.get(), report)) return {supervisor, report.exit_code, report.job_id};
    if (sent == 0) throw killed_supervisor(supervisor);
    return {supervisor, to_int(ExitCode::kSignalBase) + sent, {}};
  }
}

}  // namespace

DetachedSide detach() {
  auto [reports, starter] = spawn::make_pipe("from the job's supervisor");
  // Buffered output would be written twice.
  std::fflush(nullptr);
  // Before the supervisor exists: a Ctrl-C must not end this process alone.
  SignalInbox signals{SIGINT, SIGQUIT, SIGTERM, SIGHUP};
  pid_t between = ::fork();
  if (between < 0) throw no_supervisor(errno);
  DetachedSide side;
  if (between > 0) {
    starter.reset();
    side.started = await_start(signals, std::move(reports), between);
    return side;
  }
  // A session without a terminal, and not its leader, so that the supervisor can never acquire a terminal.
  ::setsid();
  if (pid_t supervisor = ::fork(); supervisor != 0) ::_exit(supervisor < 0 ? errno : 0);
  reports.reset();
  if (!write_report(starter.get(), {.supervisor = ::getpid()})) ::_exit(to_int(ExitCode::kInternal));
  side.is_supervisor = true;
  side.starter = std::move(starter);
  return side;
}

void leave_terminal(int console) {
  UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ::dup2(nothing.get(), STDIN_FILENO);
  std::fflush(nullptr);
  ::dup2(console, STDOUT_FILENO);
  ::dup2(console, STDERR_FILENO);
}

void report_start(const UniqueFd& starter, int exit_code, const std::string& job_id) {
  ::signal(SIGPIPE, SIG_IGN);
  Report report{.supervisor = ::getpid(), .exit_code = exit_code};
  job_id.copy(report.job_id, sizeof report.job_id - 1);
  write_report(starter.get(), report);
}

}  // namespace dslaunch::launch
