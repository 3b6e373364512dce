// Which collectives of a group this rank has called, and which of them are pending, for a watchdog on another thread.
// All members call the same sequence, so a call has the same number on all of them.
#pragma once
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace dslaunch::comm {

// A call that has not completed on this rank.
struct PendingCall {
  uint64_t number = 0;
  std::string what;  // "all_reduce of 4 float32 in group 'world'"
  std::chrono::steady_clock::time_point since;
  bool blocks_host = true;    // false: a device waits, and the host may have continued
  bool is_on_device = false;  // true: it may also be waiting for earlier computation
};

struct CallState {
  uint64_t last = 0;                  // number of the last call; 0: none yet
  std::optional<PendingCall> oldest;  // the oldest pending call
};

// For backends whose calls complete before they return. One thread calls, any thread may read.
class HostCalls {
 public:
  // The call is pending while this object lives.
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
