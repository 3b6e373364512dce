// The optimizer's step over the state that this rank owns, as the verdict of the step says. One thread.
#pragma once
#include <span>

#include "runtime/engine/step/engine_observer.hpp"
#include "runtime/engine/step/rate_schedule.hpp"
#include "runtime/engine/step/step_verdict.hpp"
#include "runtime/optim/flat_optimizer.hpp"
#include "runtime/precision/loss_scaling.hpp"

namespace dslaunch::runtime::engine::step {

class ShardUpdate {
 public:
  // The references must outlive this object. `keeps_masters`: false ("amp" O3): no state more precise than the
  // parameters is kept between steps.
  ShardUpdate(const optim::FlatOptimizer& optimizer, const precision::LossScaling& loss_scaling,
              const RateSchedule& rates, bool keeps_masters);

  // `observers` see the update before it happens. Collective for optimizers that are.
  void run(std::span<SpanState> state, const Verdict& verdict, std::span<EngineObserver* const> observers) const;
  // Unless masters are kept: they are the parameters, rounded.
  void round_masters(std::span<SpanState> state) const;

 private:
  optim::StepInputs inputs(const Verdict& verdict) const;

  const optim::FlatOptimizer& optimizer_;
  const precision::LossScaling& loss_scaling_;
  const RateSchedule& rates_;
  const bool keeps_masters_;
};

}  // namespace dslaunch::runtime::engine::step
