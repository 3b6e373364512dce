// The start states of the last steps, so that a step with non-finite values can run again with checks. One thread.
#pragma once
#include <deque>

#include "runtime/engine/diagnosis/diagnosis.hpp"
#include "runtime/state/data_position.hpp"

namespace dslaunch::runtime {

class StepSnapshots {
 public:
  // The references in `run` must outlive this object.
  explicit StepSnapshots(const FailedRun& run) : run_(run) {}

  // Call when the engine's next step begins; its samples start at `position`.
  void record(DataPosition position);
  // Runs the step again and throws UserError(76) with the result of the diagnosis. Collective.
  [[noreturn]] void explain(const StepResult& result) const;

 private:
  const FailedRun run_;
  std::deque<StepStart> starts_;
};

}  // namespace dslaunch::runtime
