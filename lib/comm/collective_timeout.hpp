// Detects a queued operation that does not end while no thread waits for it: the thread that issues operations may
// itself be stuck, in a kernel launch behind a full queue or in a read of a tensor, and then checks no clock.
//
// An operation's time begins when it was queued, or when the end of its predecessor in the queue was observed: the step
// or two by which a device runs behind the host do not count as waiting. The end is observed to within a second.
//
// A device publishes its progress in counters in host memory, one per queue. This class only reads them, so it needs
// neither the device's own interface nor any of its locks.
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
#include <vector>

#include "comm/calls.hpp"

namespace dslaunch::comm {

// "WHAT did not end within N s: ..."
std::string timeout_message(const std::string& what, std::chrono::milliseconds timeout);

class CollectiveTimeout {
 public:
  // `on_timeout` is called once, from the class's own thread and without holding its lock; must not throw.
  CollectiveTimeout(std::chrono::milliseconds timeout, std::function<void(const std::string& message)> on_timeout);
  ~CollectiveTimeout();  // no call of `on_timeout` runs after this
  CollectiveTimeout(const CollectiveTimeout&) = delete;
  CollectiveTimeout& operator=(const CollectiveTimeout&) = delete;

  // Call `number`, `what`, was queued, and has ended when *counter has reached `value` (the counter may wrap).
  // Operations of one counter end in the order of these calls. `messages`: of an exchange. One thread; `counter` must
  // stay valid for as long as this object.
  void add(const std::atomic<uint32_t>* counter, uint32_t value, uint64_t number, std::string what,
           std::vector<Message> messages = {});
  // The message about the late operation, if any. Any thread.
  std::optional<std::string> message() const;
  // The operation that has been pending longest. Any thread.
  std::optional<PendingCall> oldest();

 private:
  struct Operation {
    const std::atomic<uint32_t>* counter;
    uint32_t value;
    PendingCall call;

    bool has_ended() const;
  };

  void run();
  // Require the lock:
  void drop_ended();
  const PendingCall* longest_pending();

  const std::chrono::milliseconds timeout_;
  const std::function<void(const std::string&)> on_timeout_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Operation> operations_;  // in the order of the calls
  std::optional<std::string> message_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace dslaunch::comm
