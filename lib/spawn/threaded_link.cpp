#include "spawn/threaded_link.hpp"

#include <utility>

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
  auto done = [&] { return link_->done; };
  if (deadline.is_never()) {
    link_->changed.wait(lock, done);
    return true;
  }
  return link_->changed.wait_until(lock, deadline.when(), done);
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
