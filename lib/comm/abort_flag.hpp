// The first failure of a communicator, kept for every later call. Tied to the store, so that the end of any rank aborts
// the operations that this rank waits in: NCCL over NVLink never notices a dead peer, and Gloo reports it only to the
// ranks that communicate with it. Any thread.
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
  // Keeps the first reason (and the rank, where known) and runs the action given to set_abort_action(), once.
  void trip(const std::string& reason, int rank = -1, const std::string& host = {});
  // Sets the action that ends the backend's pending operations; runs it immediately when the flag is already tripped.
  // The action must not block.
  void set_abort_action(std::function<void()> action);
  // No action runs after this call returns. For destructors.
  void disarm();

  bool tripped() const;
  bool wait_until_tripped(std::chrono::milliseconds timeout) const;
  // Throws PeerError when tripped; `phase` names this rank's operation.
  void check(std::string_view phase) const;
  // Polls `is_reached` until it returns true; throws like check() once tripped.
  void wait_until(const std::function<bool()>& is_reached, std::string_view phase) const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool tripped_ = false;
  int rank_ = -1;
  std::string host_, reason_;
  std::function<void()> action_;
};

// Returns a flag that the loss of any rank trips, for as long as the flag has an owner.
std::shared_ptr<AbortFlag> watch_peers(rendezvous::Store& store);

}  // namespace dslaunch::comm
