// Notices that a queued operation does not end when nobody waits for it: the thread that issues operations may itself
// be stuck, in a launch behind a full queue or in a read of a tensor, and then asks no clock.
//
// An operation's time begins when it was queued, or when the one before it in its queue was seen to have ended: what a
// device computes for a step or two that the host is ahead is nobody's wait. Whoever looks sees that to a second.
//
// A device tells how far it is by counters in host memory, one for each of its queues; here they are only read, so the
// watch needs nothing of the device's own interface and none of its locks.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "comm/calls.hpp"

namespace dslaunch::comm {

// "WHAT did not end within N s: ..."
std::string late_message(const std::string& what, std::chrono::milliseconds timeout);

class CollectiveTimeout {
 public:
  // `on_late` is called once, from the watch's thread and without a lock of it; must not throw.
  CollectiveTimeout(std::chrono::milliseconds timeout, std::function<void(const std::string& message)> on_late);
  ~CollectiveTimeout();  // no call of `on_late` runs any more
  CollectiveTimeout(const CollectiveTimeout&) = delete;
  CollectiveTimeout& operator=(const CollectiveTimeout&) = delete;

  // Call `number` (0: none in the sequence of the group), `what`, was queued, and has ended when *counter has reached
  // `value` (counting may wrap). Operations of one counter end in the order of these calls. One thread; `counter` stays
  // valid for as long as the watch.
  void add(const std::atomic<uint32_t>* counter, uint32_t value, uint64_t number, std::string what);
  // What was late. Any thread.
  std::optional<std::string> message() const;
  // What has been pending the longest of all that has a number. Any thread.
  std::optional<PendingCall> oldest();

 private:
  struct Operation {
    const std::atomic<uint32_t>* counter;
    uint32_t value;
    PendingCall call;

    bool has_ended() const;
  };

  void run();
  // Under the lock:
  void forget_ended();
  const PendingCall* longest_pending();

  const std::chrono::milliseconds timeout_;
  const std::function<void(const std::string&)> on_late_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Operation> operations_;  // in the order of the calls
  std::optional<std::string> message_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace dslaunch::comm
