// Keeps the collectives in the same order on all ranks, whatever each rank's control flow does. In the first pass of
// each kind the ranks agree on every event. If all ranks were at the same event every time, the pass is recorded and
// later passes follow the record without communication: when this rank skips a recorded event, it still participates in
// the event's collectives, so that the other ranks do not wait. If ranks were at different events (control flow that
// depends on a rank's own data), they agree in every later pass, too; ranks that are not at the chosen event
// participate in it. An event that is not in a record must occur on all ranks at the same position; a rank that reaches
// it alone ends the job and is named. One thread at a time.
#pragma once
#include <c10/core/Device.h>

#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "runtime/sharding/unit_order.hpp"

namespace dslaunch::runtime {

class CollectiveOrder {
 public:
  // kGeneration: forwards that one rank does, while the others only participate.
  enum class Pass : uint8_t { kTraining, kInference, kGeneration };
  static constexpr size_t kNumPasses = 3;
  struct Options {
    c10::Device device = c10::kCPU;       // device of the buffers of the group's collectives
    std::vector<std::string> unit_names;  // by unit
    // Issues this rank's part of the collectives of an event that it did not reach itself.
    std::function<void(UnitEvent)> participate;
    // Returns when all ranks have called it with the same text; throws when a rank does not arrive.
    std::function<void(const std::string& text)> barrier;
  };

  // `group` must outlive this object.
  CollectiveOrder(comm::Communicator& group, Options options) : group_(group), options_(std::move(options)) {}

  void begin_pass(Pass pass);
  // Before the event's collectives.
  void arrive(UnitEvent event);
  void end_pass();
  // Whether other ranks may still be at `event` in this pass without this rank: false only when they are known not to
  // be.
  bool may_follow(UnitEvent event) const { return negotiates() || order().is_ahead(event); }
  // The events that are known to follow the last arrival.
  std::span<const UnitEvent> ahead() const { return negotiates() ? std::span<const UnitEvent>() : order().ahead(); }
  // Between passes: the events of another pass of the kind of the last one, as far as they are known.
  std::span<const UnitEvent> next_pass() const {
    return negotiates() ? std::span<const UnitEvent>() : order().recorded();
  }

 private:
  UnitOrder& order() { return orders_[static_cast<size_t>(pass_)]; }
  const UnitOrder& order() const { return orders_[static_cast<size_t>(pass_)]; }
  bool negotiates() const {
    return group_.size() > 1 && (order().is_recording() || diverged_[static_cast<size_t>(pass_)]);
  }
  void agree(int64_t own);
  bool all_have(int64_t code);
  int64_t first_of_all(int64_t own);
  std::string describe(UnitEvent event) const;

  comm::Communicator& group_;
  const Options options_;
  Pass pass_ = Pass::kTraining;
  UnitOrder orders_[kNumPasses];
  bool diverged_[kNumPasses] = {};  // by pass: ranks were at different events
};

}  // namespace dslaunch::runtime
