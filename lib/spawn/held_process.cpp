#include "spawn/held_process.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "spawn/pidfd.hpp"

namespace dslaunch::spawn {

using namespace std::chrono_literals;

// Interval between two checks of a process without a pidfd.
static constexpr auto kLookInterval = 20ms;

std::optional<HeldProcess> HeldProcess::hold(pid_t pid) {
  const auto stat = ports::read_process_stat(pid);
  if (!stat || !stat->alive()) return std::nullopt;
  UniqueFd fd = open_pidfd(pid);
  if (!fd.valid() && errno == ESRCH) return std::nullopt;
  HeldProcess held({pid, stat->start_ticks}, std::move(fd));
  // Checked after the pidfd was opened: from here on the pidfd and the pid mean the same process.
  if (ports::exists(held.identity_)) return held;
  held.fd_.reset();  // the pidfd may have used the last free descriptor, so that exists() had none
  if (ports::exists(held.identity_)) return held;
  return std::nullopt;
}

bool HeldProcess::has_ended() const {
  if (fd_.valid()) {
    pollfd poll{fd_.get(), POLLIN, 0};
    return ::poll(&poll, 1, 0) > 0;
  }
  const auto stat = ports::read_process_stat(identity_.pid);
  return !stat || stat->start_ticks != identity_.start_ticks || !stat->alive();
}

bool HeldProcess::signal(int number) const {
  if (fd_.valid()) return signal_pidfd(fd_, number);
  if (!has_ended()) return ::kill(identity_.pid, number) == 0;
  errno = ESRCH;
  return false;
}

Deadline HeldProcess::look_again() const {
  return fd_.valid() ? Deadline::never() : Deadline::after(kLookInterval);
}

void wait_for_an_end(const std::vector<const HeldProcess*>& processes, Deadline deadline) {
  while (!deadline.passed()) {
    std::vector<pollfd> polls;
    Deadline until = deadline;
    for (const auto* process : processes) {
      if (process->has_ended()) return;
      polls.push_back({process->fd(), POLLIN, 0});
      until = std::min(until, process->look_again());
    }
    ::poll(polls.data(), polls.size(), until.poll_timeout());
  }
}

}  // namespace dslaunch::spawn
