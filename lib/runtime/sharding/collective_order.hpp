// Keeps ranks in one order of collectives whatever their control flow does. In the first pass of each kind the ranks
// agree on every event. When all were always at the same one, the pass is recorded, and later passes follow the record
// without talking: an event that this rank leaves out is served in passing, so that the others find it taking part.
// When ranks were at different events (control flow depends on a rank's own data), they go on agreeing in every pass;
// those that are not at the chosen event participate it. An event that is not in a record must come on all ranks at the
// same place; a rank that is alone with it ends the job and is named. One thread at a time.
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
  enum class Pass : uint8_t { kTraining, kInference };
  struct Options {
    c10::Device device = c10::kCPU;       // where the group's collectives find their data
    std::vector<std::string> unit_names;  // by unit
    // Issues the collectives of an event in which this rank has no part of its own.
    std::function<void(UnitEvent)> participate;
    // Returns when all ranks have called it with the same text; throws when they do not come.
    std::function<void(const std::string& text)> meet;
  };

  // `group` must outlive this object.
  CollectiveOrder(comm::Communicator& group, Options options) : group_(group), options_(std::move(options)) {}

  void begin_pass(Pass pass);
  // Before the event's collectives.
  void arrive(UnitEvent event);
  void end_pass();
  // What is known to come after the last arrival.
  std::span<const UnitEvent> ahead() const { return talks() ? std::span<const UnitEvent>() : order().ahead(); }

 private:
  UnitOrder& order() { return orders_[static_cast<size_t>(pass_)]; }
  const UnitOrder& order() const { return orders_[static_cast<size_t>(pass_)]; }
  bool talks() const { return group_.size() > 1 && (order().is_recording() || differed_[static_cast<size_t>(pass_)]); }
  void settle(int64_t own);
  bool all_have(int64_t code);
  int64_t first_of_all(int64_t own);
  std::string describe(UnitEvent event) const;

  comm::Communicator& group_;
  const Options options_;
  Pass pass_ = Pass::kTraining;
  UnitOrder orders_[2];
  bool differed_[2] = {};  // by pass: ranks were at different events
};

}  // namespace dslaunch::runtime
