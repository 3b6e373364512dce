#include "spawn/threaded_link.hpp"

#include <utility>

#include "base/wait_until.hpp"

namespace dslaunch::spawn {

void LinkState::finish(std::optional<LinkFailure> why) {
  std::unique_lock lock(mutex);
  if (!killed) failure = std::move(why);
  lock.unlock();
  input.reset();
  output.reset();
  lock.lock();
  done = true;
  changed.notify_all();
}

std::optional<LinkFailure> ThreadedLink::failure() const {
  std::lock_guard lock(link_->mutex);
  return link_->failure;
}

bool ThreadedLink::wait(Deadline deadline) {
  std::unique_lock lock(link_->mutex);
  return wait_until(link_->changed, lock, deadline, [&] { return link_->done; });
}

std::optional<ExitCause> ThreadedLink::cause() const {
  std::lock_guard lock(link_->mutex);
  return link_->cause;
}

std::string ThreadedLink::errors() const {
  std::lock_guard lock(link_->mutex);
  return link_->errors.text();
}

}  // namespace dslaunch::spawn
