#include "comm/late_watch.hpp"

#include <algorithm>

#include "base/format.hpp"

namespace dslaunch::comm {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{1000};

}  // namespace

LateWatch::LateWatch(std::chrono::milliseconds timeout, std::function<void(const std::string&)> on_late)
    : timeout_(timeout), on_late_(std::move(on_late)), thread_([this] { run(); }) {}

LateWatch::~LateWatch() {
  {
    std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LateWatch::add(const std::atomic<uint32_t>* counter, uint32_t value, uint64_t number, std::string what) {
  std::lock_guard lock(mutex_);
  forget_ended();
  const auto now = std::chrono::steady_clock::now();
  operations_.push_back({counter, value, {number, std::move(what), now, /*holds_host=*/false}});
}

std::optional<std::string> LateWatch::message() const {
  std::lock_guard lock(mutex_);
  return message_;
}

std::optional<PendingCall> LateWatch::oldest() const {
  std::lock_guard lock(mutex_);
  for (const Operation& operation : operations_) {
    if (operation.call.number > 0 && !operation.has_ended()) return operation.call;
  }
  return std::nullopt;
}

bool LateWatch::Operation::has_ended() const {
  return static_cast<int32_t>(counter->load(std::memory_order_acquire) - value) >= 0;
}

void LateWatch::forget_ended() {
  while (!operations_.empty() && operations_.front().has_ended()) operations_.pop_front();
}

void LateWatch::run() {
  std::unique_lock lock(mutex_);
  while (!is_ending_ && !message_) {
    changed_.wait_for(lock, std::min(kBetweenLooks, timeout_ / 4), [&] { return is_ending_; });
    forget_ended();
    if (is_ending_ || operations_.empty()) continue;
    const PendingCall& oldest = operations_.front().call;
    if (std::chrono::steady_clock::now() - oldest.since < timeout_) continue;
    message_ = late_message(oldest.what, timeout_);
  }
  if (!message_) return;
  const std::string message = *message_;
  lock.unlock();
  on_late_(message);
}

std::string late_message(const std::string& what, std::chrono::milliseconds timeout) {
  return fmt::format("{} did not end within {:.1f} s: a member hangs, or is in another collective", what,
                     static_cast<double>(timeout.count()) / 1000);
}

}  // namespace dslaunch::comm
