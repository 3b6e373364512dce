#include "runtime/engine/step/shard_update.hpp"

#include <ATen/ATen.h>

namespace dslaunch::runtime::engine::step {

ShardUpdate::ShardUpdate(const optim::FlatOptimizer& optimizer, const precision::LossScaling& loss_scaling,
                         const RateSchedule& rates, bool keeps_masters)
    : optimizer_(optimizer), loss_scaling_(loss_scaling), rates_(rates), keeps_masters_(keeps_masters) {}

void ShardUpdate::run(std::span<SpanState> state, const Verdict& verdict,
                      std::span<EngineObserver* const> observers) const {
  const optim::StepInputs step_inputs = inputs(verdict);
  const ApplyUpdate update = [&](std::span<SpanState> states) { optimizer_.step(states, step_inputs); };
  for (auto* observer : observers) observer->before_update(state, update);
  update(state);
  round_masters(state);
}

// With a loss scale the host may not know yet whether its last steps were skipped, so the device selects the learning
// rates by its own count of applied steps.
optim::StepInputs ShardUpdate::inputs(const Verdict& verdict) const {
  optim::StepInputs out{
      .applied_steps = verdict.applied_steps, .gradient_factor = verdict.gradient_factor, .skip = verdict.skip};
  const int64_t applied = loss_scaling_.known_applied_steps();
  for (int64_t more = 0; more <= loss_scaling_.num_unknown_steps(); ++more) {
    out.rates.push_back(rates_.after(applied + more));
  }
  return out;
}

void ShardUpdate::round_masters(std::span<SpanState> state) const {
  if (keeps_masters_) return;
  for (auto& [span, arrays] : state) {
    if (!arrays.master_is_parameter()) arrays.master.copy_(arrays.low_precision);
  }
}

}  // namespace dslaunch::runtime::engine::step
