// The messages among the ranks of a resume, through the store. After each phase every rank reports the outcome of its
// part, rank 0 determines the worst outcome, and all ranks continue accordingly. One thread.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/deadline.hpp"
#include "comm/watchdog.hpp"
#include "rendezvous/store.hpp"
#include "runtime/checkpoint/placement.hpp"

namespace dslaunch::runtime {

// The outcome of a phase on one rank, or on all of them; a later enumerator is worse.
struct RestoreReport {
  enum class Outcome : uint8_t { kSuccess, kNeedsRemote, kDamaged, kRefused, kLate };
  Outcome outcome = Outcome::kSuccess;
  std::string message;

  bool succeeded() const { return outcome == Outcome::kSuccess; }
};

class RestoreAgreement {
 public:
  // `timeout`: for the slowest rank's part of a phase; `keys` is the prefix of all keys; `watch`, which may be null,
  // reports long waits. All referenced objects must outlive this object.
  RestoreAgreement(rendezvous::Store& store, const Placement& placement, std::chrono::milliseconds timeout,
                   std::string keys, comm::Watchdog* watch)
      : store_(store),
        placement_(placement),
        timeout_(timeout),
        watch_(watch),
        keys_(std::move(keys)),
        prefix_(keys_),
        deadline_(Deadline::after(timeout)) {}

  // Messages from now on belong to the attempt with this candidate.
  void begin_attempt(size_t candidate) { prefix_ = keys_ + std::to_string(candidate) + "/"; }

  // The worst outcome that any rank reports, the same on all ranks. Throws TimeoutError on all ranks, naming a rank
  // that does not respond.
  RestoreReport agree(const std::string& phase, const RestoreReport& own);

  // While the result lives, this rank has finished its part of the phase and waits for the others, which will also
  // reach this point.
  std::optional<comm::Watchdog::BarrierWait> begin_wait(const std::string& phase);

  // Other messages; receive() throws TimeoutError.
  void send(const std::string& key, const std::string& text);
  std::string receive(const std::string& key);
  // The message that rank 0 sends after it has heard from the others.
  std::string receive_verdict(const std::string& key);

 private:
  RestoreReport worst_of_all(const std::string& phase);
  RestoreReport report_of(int rank, const std::string& phase);

  rendezvous::Store& store_;
  const Placement& placement_;
  const std::chrono::milliseconds timeout_;
  comm::Watchdog* const watch_;
  const std::string keys_;
  std::string prefix_;
  Deadline deadline_;  // for the ranks' work until their next agreement
};

}  // namespace dslaunch::runtime
