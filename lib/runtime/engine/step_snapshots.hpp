// Where the last steps began, so that one whose numbers are not finite can be run again with checks. One thread.
#pragma once
#include <deque>

#include "runtime/engine/diagnosis.hpp"
#include "runtime/state/data_position.hpp"

namespace dslaunch::runtime {

class StepSnapshots {
 public:
  // What `run` refers to must outlive this.
  explicit StepSnapshots(const FailedRun& run) : run_(run) {}

  // The next step of the engine begins, with the samples from `position` on.
  void remember(DataPosition position);
  // Throws UserError(76) with what a second run of the step has found. Collective.
  [[noreturn]] void explain(const StepResult& result) const;

 private:
  const FailedRun run_;
  std::deque<StepStart> starts_;
};

}  // namespace dslaunch::runtime
