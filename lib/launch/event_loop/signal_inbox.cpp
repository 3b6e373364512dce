#include "launch/event_loop/signal_inbox.hpp"

#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

#include "base/error.hpp"

namespace dslaunch::launch {

static bool is_ignored(int signal) {
  struct sigaction action;
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

static bool take_waiting(const sigset_t& held_back, int signal) {
  sigset_t wanted;
  ::sigemptyset(&wanted);
  ::sigaddset(&wanted, signal);
  const timespec now{};
  return ::sigismember(&held_back, signal) == 1 && ::sigtimedwait(&wanted, nullptr, &now) == signal;
}

SignalInbox::SignalInbox(std::initializer_list<int> signals) {
  ::signal(SIGPIPE, SIG_IGN);
  ::sigemptyset(&taken_);
  for (int signal : signals) {
    if (signal == SIGHUP && is_ignored(signal)) continue;
    ::sigaddset(&taken_, signal);
  }
  fd_ = UniqueFd(::signalfd(-1, &taken_, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_.valid()) throw SystemError("signalfd", "for our signals");
  ::pthread_sigmask(SIG_BLOCK, &taken_, &before_);
}

SignalInbox::~SignalInbox() {
  for (int signal : {SIGUSR1, SIGUSR2}) {
    if (::sigismember(&taken_, signal) == 1) ::sigaddset(&before_, signal);
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void SignalInbox::ignore_from_now_on() {
  for (int signal = 1; signal < NSIG; ++signal) {
    if (::sigismember(&taken_, signal) == 1 && signal != SIGCHLD) ::signal(signal, SIG_IGN);
  }
}

std::optional<int> SignalInbox::take() {
  // `stop --now` sends SIGTERM, then SIGINT if no socket answers: the first gives the end's reason, while the kernel
  // delivers the lower number first when both are pending.
  if (take_waiting(taken_, SIGTERM)) return SIGTERM;
  signalfd_siginfo info;
  if (::read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace dslaunch::launch
