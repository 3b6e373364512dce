// The first failure of a communicator, kept for every call that follows. Tied to the store, so that the end of any rank
// breaks what this rank is waiting for: NCCL over NVLink never notices a dead peer, Gloo tells only those who talk to
// it. Any thread.
#pragma once
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "rendezvous/store.hpp"

namespace dslaunch::comm {

class AbortFlag {
 public:
  // Keeps the first reason (and the rank, where known) and runs what break_with() gave, once.
  void trip(const std::string& reason, int rank = -1, const std::string& host = {});
  // How to end the backend's pending operations; runs at once when the latch is tripped already. Must not block.
  void break_with(std::function<void()> action);
  // No action runs after this has returned. For destructors.
  void disarm();

  bool tripped() const;
  bool wait_until_tripped(std::chrono::milliseconds at_most) const;
  // Throws PeerError when tripped; `phase` says what this rank was doing.
  void check(std::string_view phase) const;
  // Asks `is_reached` until it says so; throws like check() once tripped.
  void wait_until(const std::function<bool()>& is_reached, std::string_view phase) const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool tripped_ = false;
  int rank_ = -1;
  std::string host_, reason_;
  std::function<void()> action_;
};

// A latch that the loss of any rank trips, for as long as somebody holds it.
std::shared_ptr<AbortFlag> watch_peers(rendezvous::Store& store);

}  // namespace dslaunch::comm
