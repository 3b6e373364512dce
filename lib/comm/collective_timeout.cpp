#include "comm/collective_timeout.hpp"

#include <algorithm>
#include <vector>

#include "base/format.hpp"

namespace dslaunch::comm {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{1000};

}  // namespace

CollectiveTimeout::CollectiveTimeout(std::chrono::milliseconds timeout,
                                     std::function<void(const std::string&)> on_timeout)
    : timeout_(timeout), on_timeout_(std::move(on_timeout)), thread_([this] { run(); }) {}

CollectiveTimeout::~CollectiveTimeout() {
  {
    std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CollectiveTimeout::add(const std::atomic<uint32_t>* counter, uint32_t value, uint64_t number, std::string what,
                            std::vector<Message> messages) {
  std::lock_guard lock(mutex_);
  drop_ended();
  PendingCall call{number, std::move(what), std::chrono::steady_clock::now()};
  call.blocks_host = false;
  call.is_on_device = true;
  call.messages = std::move(messages);
  operations_.push_back({counter, value, std::move(call)});
}

std::optional<std::string> CollectiveTimeout::message() const {
  std::lock_guard lock(mutex_);
  return message_;
}

std::optional<PendingCall> CollectiveTimeout::oldest() {
  std::lock_guard lock(mutex_);
  const PendingCall* longest = longest_pending();
  return longest ? std::optional(*longest) : std::nullopt;
}

bool CollectiveTimeout::Operation::has_ended() const {
  return static_cast<int32_t>(counter->load(std::memory_order_acquire) - value) >= 0;
}

void CollectiveTimeout::drop_ended() {
  const auto now = std::chrono::steady_clock::now();
  for (size_t i = 0; i < operations_.size();) {
    if (!operations_[i].has_ended()) {
      ++i;
      continue;
    }
    const auto* counter = operations_[i].counter;
    operations_.erase(operations_.begin() + static_cast<std::ptrdiff_t>(i));
    const auto next = std::find_if(operations_.begin() + static_cast<std::ptrdiff_t>(i), operations_.end(),
                                   [&](const Operation& operation) { return operation.counter == counter; });
    if (next != operations_.end()) next->call.since = std::max(next->call.since, now);
  }
}

// Only the first operation of each queue is running: the operations behind it have not begun, however long they are
// queued.
const PendingCall* CollectiveTimeout::longest_pending() {
  drop_ended();
  const PendingCall* longest = nullptr;
  std::vector<const std::atomic<uint32_t>*> queues;  // queues seen so far
  for (const Operation& operation : operations_) {
    if (std::find(queues.begin(), queues.end(), operation.counter) != queues.end()) continue;
    queues.push_back(operation.counter);
    if (!longest || operation.call.since < longest->since) longest = &operation.call;
  }
  return longest;
}

void CollectiveTimeout::run() {
  std::unique_lock lock(mutex_);
  while (!is_ending_ && !message_) {
    changed_.wait_for(lock, std::min(kBetweenLooks, timeout_ / 4), [&] { return is_ending_; });
    const PendingCall* longest = longest_pending();
    if (is_ending_ || !longest || std::chrono::steady_clock::now() - longest->since < timeout_) continue;
    message_ = timeout_message(longest->what, timeout_);
  }
  if (!message_) return;
  const std::string message = *message_;
  lock.unlock();
  on_timeout_(message);
}

std::string timeout_message(const std::string& what, std::chrono::milliseconds timeout) {
  return fmt::format("{} did not end within {:.1f} s: a member hangs, or is in another collective", what,
                     static_cast<double>(timeout.count()) / 1000);
}

}  // namespace dslaunch::comm
