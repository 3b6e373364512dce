// What the ranks of a resume tell one another, by way of the store. After each phase every rank tells how its part
// went, rank 0 finds the worst of it, and all go on by that. One thread.
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

// How a phase went on one rank, or on all of them; a later outcome is worse.
struct RestoreReport {
  enum class Outcome : uint8_t { kGood, kNeedsOthers, kDamaged, kRefused, kLate };
  Outcome outcome = Outcome::kGood;
  std::string message;

  bool is_good() const { return outcome == Outcome::kGood; }
};

class RestoreAgreement {
 public:
  // `timeout`: for the slowest rank's part of a phase; `keys` stands in front of all keys; `watch`, which may be null,
  // tells of long waits. What is referred to must outlive this object.
  RestoreAgreement(rendezvous::Store& store, const Placement& placement, std::chrono::milliseconds timeout,
                   std::string keys, comm::Watchdog* watch)
      : store_(store),
        placement_(placement),
        timeout_(timeout),
        watch_(watch),
        keys_(std::move(keys)),
        prefix_(keys_),
        deadline_(Deadline::after(timeout)) {}

  // What is told from now on belongs to the try of this candidate.
  void begin_try(size_t candidate) { prefix_ = keys_ + std::to_string(candidate) + "/"; }

  // The worst that any rank reports, the same on all. Throws TimeoutError on all ranks, naming one that does not come.
  RestoreReport agree(const std::string& phase, const RestoreReport& own);

  // While it lives, this rank has done its part of the phase and waits for the others, who come to it as well.
  std::optional<comm::Watchdog::Meeting> wait_for_others(const std::string& phase);

  // Other words; hearing throws TimeoutError.
  void tell(const std::string& key, const std::string& text);
  std::string hear(const std::string& key);
  // What rank 0 tells after it has heard the others.
  std::string hear_verdict(const std::string& key);

 private:
  RestoreReport worst_of_all(const std::string& phase);
  RestoreReport report_of(int rank, const std::string& phase);

  rendezvous::Store& store_;
  const Placement& placement_;
  const std::chrono::milliseconds timeout_;
  comm::Watchdog* const watch_;
  const std::string keys_;
  std::string prefix_;
  Deadline deadline_;  // for what the ranks do until they agree the next time
};

}  // namespace dslaunch::runtime
