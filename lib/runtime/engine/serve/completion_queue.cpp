#include "runtime/engine/serve/completion_queue.hpp"

#include <utility>

namespace dslaunch::runtime::engine::serve {

CompletionQueue::Outcome CompletionQueue::push(QueuedCompletion completion) {
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return Outcome::kClosed;
    // Clients that did not wait do not keep others out.
    std::erase_if(waiting_, [](const auto& one) { return one.exchange->is_gone(); });
    if (waiting_.size() >= max_waiting_) return Outcome::kFull;
    waiting_.push_back(std::move(completion));
  }
  arrived_.notify_one();
  return Outcome::kTaken;
}

std::optional<QueuedCompletion> CompletionQueue::pop(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, timeout, [this] { return !waiting_.empty() || is_closed_; });
  if (waiting_.empty()) return std::nullopt;
  QueuedCompletion out = std::move(waiting_.front());
  waiting_.pop_front();
  return out;
}

void CompletionQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  arrived_.notify_all();
}

size_t CompletionQueue::num_waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size();
}

}  // namespace dslaunch::runtime::engine::serve
