#include "launch/agent/guard.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string_view>

#include "base/exit_code.hpp"
#include "spawn/process_cleanup.hpp"

namespace dslaunch::launch {
namespace {

// Signals are meant for the agent, and a scheduler sends them to both; the guard must outlive the agent.
void ignore_signals() {
  for (int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU}) {
    std::signal(signal, SIG_IGN);
  }
}

// The launcher detects the agent's end by that of its descriptors.
void close_descriptors() {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, stream);
  ::closefrom(STDERR_FILENO + 1);
}

// Shows `dslaunch guard ...` in process lists, for people and for tools that end agents by name: the words of the
// command line are contiguous in memory, and "guard" is as long as the "agent" that it replaces.
void take_name() {
  char* command = ::program_invocation_name + std::strlen(::program_invocation_name) + 1;
  constexpr std::string_view kAgent = "agent", kGuard = "guard";
  if (command == kAgent) kGuard.copy(command, kGuard.size());
  ::prctl(PR_SET_NAME, "dslaunch-guard");
}

int end_like(int status) {
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const int signal = WTERMSIG(status);
  const rlimit no_core{0, 0};  // the agent has left one
  ::setrlimit(RLIMIT_CORE, &no_core);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
  return to_int(ExitCode::kSignalBase) + signal;
}

// Waits for this child, ends the processes that it left behind, and exits as it did.
int guard(pid_t agent) {
  int status = 0;
  for (pid_t ended = 0; ended != agent;) {
    ended = ::waitpid(-1, &status, 0);
    if (ended < 0 && errno != EINTR) return to_int(ExitCode::kInternal);
  }
  if (::waitpid(-1, nullptr, WNOHANG) >= 0) spawn::cleanup_job({}, std::chrono::milliseconds(0), /*children_too=*/true);
  return end_like(status);
}

}  // namespace

void put_under_guard() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return;
  const pid_t agent = ::fork();
  if (agent <= 0) return;
  ignore_signals();
  close_descriptors();
  take_name();
  ::_exit(guard(agent));
}

}  // namespace dslaunch::launch
