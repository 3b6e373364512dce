// Waits for a condition until a deadline, which may be never.
#pragma once
#include <condition_variable>
#include <mutex>

#include "base/deadline.hpp"

namespace dslaunch {

// False when the deadline passes before `ready`, which is called with the lock held, returns true.
template <class Ready>
bool wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, const Deadline& deadline,
                Ready ready) {
  if (!deadline.is_never()) return changed.wait_until(lock, deadline.when(), ready);
  changed.wait(lock, ready);
  return true;
}

}  // namespace dslaunch
