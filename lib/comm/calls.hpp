// Which collectives of a group this rank has called, which messages it has exchanged with other members, and what is
// pending, for a watchdog on another thread. All members call the same sequence of collectives, so a collective has the
// same number on all of them. Messages are counted for each pair of members and each direction, so a message has the
// same number on both of them.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dslaunch::comm {

// One message from a member to another; this rank is one of the two.
struct Message {
  int from = 0, to = 0;
  uint64_t number = 0;

  friend bool operator==(const Message&, const Message&) = default;
};

// A call that has not completed on this rank.
struct PendingCall {
  uint64_t number = 0;  // of an exchange: among this rank's own exchanges
  std::string what;     // "all_reduce of 4 float32 in group 'world'"
  std::chrono::steady_clock::time_point since;
  bool blocks_host = true;             // false: a device waits, and the host may have continued
  bool is_on_device = false;           // true: it may also be waiting for earlier computation
  std::vector<Message> messages = {};  // an exchange: it waits for the other ends of these, not for the whole group
};

// Numbers of the last messages, by the members that they go from and to.
using MessageCounts = std::map<std::pair<int, int>, uint64_t>;

struct CallState {
  uint64_t last = 0;                  // number of the last collective; 0: none yet
  std::optional<PendingCall> oldest;  // the oldest pending call
  MessageCounts messages = {};        // those that this rank has begun to send or receive
};

// Counts the messages of this rank and its exchanges. One thread counts, any thread reads.
class ExchangeCounter {
 public:
  // Counts a message, and returns it.
  Message count(int from, int to) {
    std::lock_guard lock(mutex_);
    return {from, to, ++counts_[{from, to}]};
  }
  uint64_t next_exchange() { return ++num_exchanges_; }
  MessageCounts counts() const {
    std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  mutable std::mutex mutex_;
  MessageCounts counts_;        // guarded by mutex_
  uint64_t num_exchanges_ = 0;  // of the thread that counts
};

// For backends whose calls complete before they return. One thread calls, any thread may read.
class HostCalls {
 public:
  // The call is pending while this object lives.
  class Scope {
   public:
    Scope(HostCalls& calls, std::string what) : number(calls.begin(std::move(what))), calls_(calls) {}
    // An exchange, which has no number in the group's sequence.
    Scope(HostCalls& calls, std::string what, uint64_t exchange, std::vector<Message> messages)
        : number(calls.begin_exchange(std::move(what), exchange, std::move(messages))), calls_(calls) {}
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
  uint64_t begin_exchange(std::string what, uint64_t exchange, std::vector<Message> messages) {
    std::lock_guard lock(mutex_);
    state_.oldest = PendingCall{exchange, std::move(what), std::chrono::steady_clock::now()};
    state_.oldest->messages = std::move(messages);
    return exchange;
  }
  void end() {
    std::lock_guard lock(mutex_);
    state_.oldest.reset();
  }

  mutable std::mutex mutex_;
  CallState state_;
};

}  // namespace dslaunch::comm
