// Which collectives of a group this rank has called, and which of them it is in: what a watch looks at from another
// thread. All members call the same sequence, so a call's number is the same on all of them.
#pragma once
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace dslaunch::comm {

// A call that has not ended here.
struct PendingCall {
  uint64_t number = 0;
  std::string what;  // "all_reduce of 4 float32 in group 'world'"
  std::chrono::steady_clock::time_point since;
  bool holds_host = true;     // false: a device waits, and the host may have gone on
  bool is_on_device = false;  // then it may also be waiting for what was computed before it
};

struct CallState {
  uint64_t last = 0;                  // number of the last call; 0: none yet
  std::optional<PendingCall> oldest;  // of those that have not ended
};

// For backends whose calls end before they return. One thread calls, any looks.
class HostCalls {
 public:
  // While it lives, the call is pending.
  class Scope {
   public:
    Scope(HostCalls& calls, std::string what) : number(calls.begin(std::move(what))), calls_(calls) {}
    ~Scope() { calls_.end(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

    const uint64_t number;

   private:
    HostCalls& calls_;
  };

  CallState state() const {
    std::lock_guard lock(mutex_);
    return state_;
  }

 private:
  uint64_t begin(std::string what) {
    std::lock_guard lock(mutex_);
    state_.oldest = PendingCall{++state_.last, std::move(what), std::chrono::steady_clock::now()};
    return state_.last;
  }
  void end() {
    std::lock_guard lock(mutex_);
    state_.oldest.reset();
  }

  mutable std::mutex mutex_;
  CallState state_;
};

}  // namespace dslaunch::comm
