#include "launch/agent/guard.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "base/deadline.hpp"
#include "base/exit_code.hpp"
#include "base/unique_fd.hpp"
#include "ports/process_info.hpp"
#include "spawn/exit_cause.hpp"
#include "spawn/process_cleanup.hpp"

namespace dslaunch::launch {
namespace {

// Signals are meant for the agent, and a scheduler sends them to both; the guard must outlive the agent.
void ignore_signals() {
  for (int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU}) {
    std::signal(signal, SIG_IGN);
  }
}

// The launcher detects the agent's end by that of its descriptors. Standard input stays, to detect the launcher's.
void close_descriptors() {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int stream : {STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, stream);
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
  spawn::end_by_signal(WTERMSIG(status));
}

// Wakes for ends of children; invalid where no descriptor is left.
UniqueFd watch_children() {
  sigset_t children;
  ::sigemptyset(&children);
  ::sigaddset(&children, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &children, nullptr);
  return UniqueFd(::signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK));
}

void continue_if_stopped(pid_t agent) {
  const auto stat = ports::read_process_stat(agent);
  if (stat && stat->state == 'T') ::kill(agent, SIGCONT);
}

// Waits for the end of a child, or for something to do meanwhile. `due`: when a stopped agent is continued; never
// while its launcher lives.
void await_news(const UniqueFd& children, pid_t agent, std::chrono::milliseconds stop_limit, Deadline& due) {
  constexpr int kTurnMs = 250;  // once the launcher is gone: the agent may be stopped again
  const bool has_launcher = due.is_never();
  // Without events a poll reports the writer's end alone: what the launcher has written is the agent's to read.
  pollfd polls[] = {{children.get(), POLLIN, 0}, {has_launcher ? STDIN_FILENO : -1, 0, 0}};
  ::poll(polls, 2, has_launcher && children.valid() ? -1 : kTurnMs);
  signalfd_siginfo taken;
  while (children.valid() && ::read(children.get(), &taken, sizeof taken) > 0) {
  }
  if ((polls[1].revents & (POLLHUP | POLLERR)) != 0) due = Deadline::after(stop_limit);
  if (due.passed()) continue_if_stopped(agent);
}

// Waits for this child, ends the processes that it left behind, and exits as it did.
int guard(pid_t agent, std::chrono::milliseconds stop_limit) {
  const UniqueFd children = watch_children();
  Deadline due = Deadline::never();
  int status = 0;
  for (pid_t ended = 0; ended != agent;) {
    ended = ::waitpid(-1, &status, WNOHANG);
    if (ended < 0 && errno != EINTR) return to_int(ExitCode::kInternal);
    if (ended == 0) await_news(children, agent, stop_limit, due);
  }
  ::close(STDIN_FILENO);  // in case it is the descriptor by which the launcher detects the agent's end
  if (::waitpid(-1, nullptr, WNOHANG) >= 0) spawn::cleanup_job({}, std::chrono::milliseconds(0), /*children_too=*/true);
  return end_like(status);
}

}  // namespace

void put_under_guard(std::chrono::milliseconds stop_limit) {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return;
  const pid_t agent = ::fork();
  if (agent <= 0) return;
  ignore_signals();
  close_descriptors();
  take_name();
  ::_exit(guard(agent, stop_limit));
}

}  // namespace dslaunch::launch
