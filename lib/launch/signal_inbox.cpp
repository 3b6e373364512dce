#include "launch/signal_inbox.hpp"

#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

#include "base/error.hpp"

namespace dslaunch::launch {

static bool is_ignored(int signal) {
  struct sigaction action;
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

SignalInbox::SignalInbox(std::initializer_list<int> signals) {
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  ::sigemptyset(&set);
  for (int signal : signals) {
    if (signal == SIGHUP && is_ignored(signal)) continue;
    ::sigaddset(&set, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  fd_ = UniqueFd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_.valid()) throw SystemError("signalfd", "for our signals");
}

std::optional<int> SignalInbox::take() {
  signalfd_siginfo info;
  if (::read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace dslaunch::launch
