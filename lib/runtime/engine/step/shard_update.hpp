// The optimizer's step over the state that this rank owns, as the verdict of the step says. Of offloaded state it only
// begins the update. One thread.
#pragma once
#include <span>

#include "runtime/engine/step/engine_observer.hpp"
#include "runtime/engine/step/rate_schedule.hpp"
#include "runtime/engine/step/step_verdict.hpp"
#include "runtime/offload/host_updates.hpp"
#include "runtime/optim/flat_optimizer.hpp"
#include "runtime/precision/loss_scaling.hpp"

namespace dslaunch::runtime::engine::step {

class ShardUpdate {
 public:
  // The references must outlive this object. `keeps_masters`: false ("amp" O3): no state more precise than the
  // parameters is kept between steps. `host_updates`: null if nothing is offloaded.
  ShardUpdate(const optim::FlatOptimizer& optimizer, const precision::LossScaling& loss_scaling,
              const RateSchedule& rates, bool keeps_masters, offload::HostUpdates* host_updates);

  // Before the last backward of a step whose gradient factor is known to be `factor` (on the host): updates of
  // offloaded state begin as gradients arrive, before run(). `loss`: of this rank's micro batches.
  void expect_early(const at::Tensor& factor, const at::Tensor& loss) const;
  // `observers` see the update before it happens. Collective for optimizers that are.
  void run(std::span<SpanState> state, const Verdict& verdict, std::span<EngineObserver* const> observers) const;
  // Unless masters are kept: they are the parameters, rounded.
  void round_masters(std::span<SpanState> state) const;

 private:
  optim::StepInputs inputs(const Verdict& verdict) const;
  void update_on_device(std::span<SpanState> state, const optim::StepInputs& inputs) const;
  void begin_on_host(std::span<const SpanState> state, const optim::StepInputs& inputs) const;
  offload::HostUpdates::Update update_on_host(const optim::StepInputs& inputs) const;

  const optim::FlatOptimizer& optimizer_;
  const precision::LossScaling& loss_scaling_;
  const RateSchedule& rates_;
  const bool keeps_masters_;
  offload::HostUpdates* const host_updates_;
};

}  // namespace dslaunch::runtime::engine::step
