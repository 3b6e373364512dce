// Requests on their way from the server's thread to the one that runs the model: bounded, first in, first out. Any
// thread.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "http/exchange.hpp"
#include "runtime/engine/serve/completion_request.hpp"

namespace dslaunch::runtime::engine::serve {

struct QueuedCompletion {
  CompletionRequest request;
  std::shared_ptr<http::Exchange> exchange;
  std::chrono::steady_clock::time_point arrived = std::chrono::steady_clock::now();
};

class CompletionQueue {
 public:
  enum class Outcome { kTaken, kFull, kClosed };

  explicit CompletionQueue(size_t max_waiting) : max_waiting_(max_waiting) {}

  Outcome push(QueuedCompletion completion);
  // Waits for one; nothing: there was none in this time.
  std::optional<QueuedCompletion> pop(std::chrono::milliseconds timeout);
  // Nothing is taken any more; what is there can be popped.
  void close();
  size_t num_waiting() const;

 private:
  const size_t max_waiting_;

  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<QueuedCompletion> waiting_;  // guarded by mutex_
  bool is_closed_ = false;                // likewise
};

}  // namespace dslaunch::runtime::engine::serve
