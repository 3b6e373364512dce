// The start states of the last steps, so that a step with non-finite values can run again with checks. One thread.
#pragma once
#include <deque>

#include "runtime/engine/diagnosis/diagnosis.hpp"
#include "runtime/state/data_position.hpp"

namespace dslaunch::runtime::engine::diagnosis {

class StepSnapshots : private step::EngineObserver {
 public:
  // Observes the engine of `run`. `position`: where the samples of the engine's next step start, whenever it begins.
  // `position` and the references in `run` must outlive this object, and this object the engine's last step.
  StepSnapshots(const FailedRun& run, const DataPosition& position);

  // Runs the step again and throws UserError(76) with the result of the diagnosis. Collective.
  [[noreturn]] void explain(const step::StepResult& result) const;

 private:
  void begin_step(int64_t step) override;
  bool allows_early_updates() const override { return true; }

  const FailedRun run_;
  const DataPosition& position_;
  std::deque<StepStart> starts_;
};

}  // namespace dslaunch::runtime::engine::diagnosis
