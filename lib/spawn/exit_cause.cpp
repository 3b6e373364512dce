#include "spawn/exit_cause.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "base/exit_code.hpp"
#include "base/format.hpp"

namespace dslaunch::spawn {

ExitCause decode_wait_status(int status) {
  ExitCause cause;
  if (WIFSIGNALED(status)) {
    cause.kind = ExitCause::Kind::kSignaled;
    cause.number = WTERMSIG(status);
    cause.core_dumped = WCOREDUMP(status);
  } else {
    cause.number = WEXITSTATUS(status);
  }
  return cause;
}

void end_by_signal(int signal) {
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  std::signal(signal, SIG_DFL);
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  std::raise(signal);
  ::_exit(to_int(ExitCode::kSignalBase) + signal);  // pid 1 of a container is not killed
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

static std::string describe_kind(const ExitCause& cause) {
  switch (cause.kind) {
    case ExitCause::Kind::kExited:
      return fmt::format("exit code {}", cause.number);
    case ExitCause::Kind::kSignaled:
      return fmt::format("killed by {} (signal {}){}", signal_name(cause.number), cause.number,
                         cause.core_dumped ? ", core dumped" : "");
    case ExitCause::Kind::kNotStarted:
      return "not started";
  }
  return {};
}

std::string describe(const ExitCause& cause) {
  return cause.hint.empty() ? describe_kind(cause) : fmt::format("{}: {}", describe_kind(cause), cause.hint);
}

}  // namespace dslaunch::spawn
