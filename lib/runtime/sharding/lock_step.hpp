// Keeps ranks in one order of collectives whatever their control flow does. The first pass of each kind is recorded,
// event by event agreed among the ranks. Later passes follow the record without talking: an event that this rank left
// out is served in passing, so that the others find it taking part. An event that is not in the record must come on all
// ranks at the same place; a rank that is alone with it ends the job and is named. One thread at a time.
#pragma once
#include <c10/core/Device.h>

#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "runtime/sharding/unit_order.hpp"

namespace dslaunch::runtime {

class LockStep {
 public:
  enum class Pass : uint8_t { kTraining, kInference };
  struct Options {
    c10::Device device = c10::kCPU;       // where the group's collectives find their data
    std::vector<std::string> unit_names;  // by unit
    // Issues the collectives of an event in which this rank has no part of its own.
    std::function<void(UnitEvent)> serve;
    // Returns when all ranks have called it with the same text; throws when they do not come.
    std::function<void(const std::string& text)> meet;
  };

  // `group` must outlive this object.
  LockStep(comm::Communicator& group, Options options) : group_(group), options_(std::move(options)) {}

  void begin_pass(Pass pass);
  // Before the event's collectives. Throws UserError(65), naming ranks and units, when ranks are not at the same event.
  void arrive(UnitEvent event);
  void end_pass();
  // Recorded events after the last arrival; empty while recording.
  std::span<const UnitEvent> ahead() const { return order().ahead(); }

 private:
  UnitOrder& order() { return orders_[static_cast<size_t>(pass_)]; }
  const UnitOrder& order() const { return orders_[static_cast<size_t>(pass_)]; }
  void agree(UnitEvent event);
  [[noreturn]] void name_the_difference(int64_t own_code);
  std::string describe(UnitEvent event) const;

  comm::Communicator& group_;
  const Options options_;
  Pass pass_ = Pass::kTraining;
  UnitOrder orders_[2];
};

}  // namespace dslaunch::runtime
