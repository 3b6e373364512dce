#include "launch/supervisor/restart_signal_guard.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <future>
#include <utility>

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "launch/event_loop/poll_set.hpp"
#include "spawn/link_thread.hpp"

namespace dslaunch::launch {

struct RestartSignalGuard::Shared {
  SignalInbox& signals;
  std::function<std::optional<int>(int signal)> end;
  UniqueFd over{::eventfd(0, EFD_CLOEXEC)};
  std::promise<void> gone;

  void watch() {
    for (;;) {
      PollSet polls;
      const size_t taken = polls.add(signals.fd(), POLLIN);
      const size_t finished = polls.add(over.get(), POLLIN);
      polls.wait(Deadline::never());
      if (polls.ready(finished)) return gone.set_value();
      if (!polls.ready(taken)) continue;
      const auto signal = signals.take();
      if (const auto code = signal ? end(*signal) : std::nullopt) ::_exit(*code);
    }
  }
};

RestartSignalGuard::RestartSignalGuard(SignalInbox& signals, std::function<std::optional<int>(int signal)> end)
    : shared_(new Shared{signals, std::move(end)}) {
  if (!shared_->over.valid()) throw SystemError("eventfd", "for signals between two attempts");
  spawn::start_link_thread([shared = shared_] { shared->watch(); });
}

RestartSignalGuard::~RestartSignalGuard() {
  ::eventfd_write(shared_->over.get(), 1);
  shared_->gone.get_future().wait();
}

}  // namespace dslaunch::launch
