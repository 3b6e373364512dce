// Starts and awaits the one program of process.hpp that shares this process's terminal.
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/error.hpp"
#include "base/exit_code.hpp"
#include "spawn/pipe.hpp"
#include "spawn/process.hpp"

namespace dslaunch::spawn {
namespace {

// What other processes send to end a program, or to tell it something.
constexpr int kForwarded[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

sigset_t waited_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (int signal : kForwarded) ::sigaddset(&set, signal);
  ::sigaddset(&set, SIGCHLD);
  return set;
}

// Runs in the child.
[[noreturn]] void become_program(const std::vector<char*>& argv, const sigset_t& mask, pid_t parent, int report) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the parent died before the line above took effect
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::execv(argv[0], argv.data());
  const int error = errno;
  [[maybe_unused]] const auto written = ::write(report, &error, sizeof error);
  ::_exit(127);
}

// The errno of a program that did not start; 0 when it runs.
int exec_error(const UniqueFd& report) {
  int error = 0;
  ssize_t got;
  while ((got = ::read(report.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  return got == sizeof error ? error : 0;
}

// The kernel's own signals come from the terminal, which sends them to the whole process group.
bool is_sent_by_process(const siginfo_t& info) {
  return info.si_code == SI_USER || info.si_code == SI_QUEUE || info.si_code == SI_TKILL;
}

EndedChild wait_for(pid_t pid, const sigset_t& signals) {
  while (true) {
    while (auto ended = reap_any()) {
      if (ended->pid == pid) return *std::move(ended);
    }
    siginfo_t info;
    const int signal = ::sigwaitinfo(&signals, &info);
    if (signal > 0 && signal != SIGCHLD && is_sent_by_process(info)) ::kill(pid, signal);
  }
}

}  // namespace

EndedChild run_in_foreground(const std::vector<std::string>& argv) {
  std::vector<char*> words;
  for (const auto& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  Pipe report = make_pipe("for a program's start");
  const sigset_t signals = waited_signals();
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, &signals, &before);
  ::signal(SIGCHLD, SIG_DFL);  // where our parent ignores it, the kernel would not keep the program's status
  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid < 0) throw SystemError("fork", argv[0], errno, ExitCode::kUnavailable);
  if (pid == 0) become_program(words, before, parent, report.write.get());
  report.write.reset();
  const int error = exec_error(report.read);
  auto ended = error == 0 ? wait_for(pid, signals) : EndedChild{};
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error == 0) return ended;
  throw SystemError("execv", argv[0], error, ExitCode::kUnavailable);
}

}  // namespace dslaunch::spawn
