#include "launch/jobs/detach.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>

#include "base/error.hpp"
#include "base/exit_code.hpp"
#include "launch/poll_set.hpp"
#include "launch/signal_inbox.hpp"

namespace dslaunch::launch {
namespace {

struct Report {
  pid_t supervisor = -1;
  int exit_code = 0;
};

void take_streams(int console) {
  UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ::dup2(nothing.get(), STDIN_FILENO);
  ::dup2(console, STDOUT_FILENO);
  ::dup2(console, STDERR_FILENO);
}

// Reports are shorter than what a pipe writes at once: all of one is there, or nothing.
bool read_report(int fd, Report& report) {
  ssize_t got;
  do {
    got = ::read(fd, &report, sizeof report);
  } while (got < 0 && errno == EINTR);
  return got == sizeof report;
}

// Who it is comes first, how it began after that. Until then a Ctrl-C is meant for the job.
Started await_start(UniqueFd reports, pid_t between) {
  SignalInbox signals{SIGINT, SIGTERM, SIGHUP};
  ::waitpid(between, nullptr, 0);
  Started started;
  Report report;
  if (!read_report(reports.get(), report)) throw SystemError("start", "the job's supervisor", ECHILD);
  started.supervisor = report.supervisor;
  for (;;) {
    PollSet polls;
    polls.add(signals.fd(), POLLIN);
    size_t place = polls.add(reports.get(), POLLIN);
    polls.wait(Deadline::never());
    while (auto signal = signals.take()) ::kill(started.supervisor, *signal);
    if (!polls.ready(place)) continue;
    started.exit_code = read_report(reports.get(), report) ? report.exit_code : to_int(ExitCode::kInternal);
    return started;
  }
}

}  // namespace

DetachedSide detach(int console) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw SystemError("pipe2", "from the job's supervisor");
  UniqueFd reports(ends[0]), starter(ends[1]);
  // What is buffered would be written twice.
  std::fflush(nullptr);
  pid_t between = ::fork();
  if (between < 0) throw SystemError("fork", "the job's supervisor");
  DetachedSide side;
  if (between > 0) {
    starter.reset();
    side.started = await_start(std::move(reports), between);
    return side;
  }
  // A session without a terminal, and no leader of it, so that it never gets one again.
  ::setsid();
  if (pid_t supervisor = ::fork(); supervisor != 0) ::_exit(supervisor < 0 ? 1 : 0);
  reports.reset();
  take_streams(console);
  Report own{::getpid(), 0};
  if (::write(starter.get(), &own, sizeof own) != sizeof own) ::_exit(to_int(ExitCode::kInternal));
  side.is_supervisor = true;
  side.supervising.starter = std::move(starter);
  return side;
}

void report_start(const UniqueFd& starter, int exit_code) {
  Report report{::getpid(), exit_code};
  ::signal(SIGPIPE, SIG_IGN);
  [[maybe_unused]] ssize_t wrote = ::write(starter.get(), &report, sizeof report);
}

}  // namespace dslaunch::launch
