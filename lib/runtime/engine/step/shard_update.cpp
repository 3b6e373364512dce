#include "runtime/engine/step/shard_update.hpp"

#include <ATen/ATen.h>

namespace dslaunch::runtime::engine::step {

ShardUpdate::ShardUpdate(const optim::FlatOptimizer& optimizer, const precision::LossScaling& loss_scaling,
                         const RateSchedule& rates, bool keeps_masters, offload::HostUpdates* host_updates)
    : optimizer_(optimizer),
      loss_scaling_(loss_scaling),
      rates_(rates),
      keeps_masters_(keeps_masters),
      host_updates_(host_updates) {}

void ShardUpdate::run(std::span<SpanState> state, const Verdict& verdict,
                      std::span<EngineObserver* const> observers) const {
  const optim::StepInputs step_inputs = inputs(verdict);
  const ApplyUpdate update = [&](std::span<SpanState> states) { optimizer_.step(states, step_inputs); };
  for (auto* observer : observers) observer->before_update(state, update);
  update_on_device(state, step_inputs);
  if (host_updates_ != nullptr) begin_on_host(state, step_inputs);
  round_masters(state);
}

// Of parameters that rest on the host, the update writes a copy, which returns there; those in files are written from
// the masters.
void ShardUpdate::update_on_device(std::span<SpanState> state, const optim::StepInputs& step_inputs) const {
  std::vector<SpanState> resident;
  for (const auto& [span, arrays] : state) {
    if (arrays.is_offloaded) continue;
    resident.push_back({span, arrays});
    resident.back().arrays.stored_parameter.reset();
  }
  const auto rests_elsewhere = [](const StateArrays& arrays) {
    return !arrays.master_is_parameter() && arrays.low_precision.device() != arrays.master.device();
  };
  std::vector<at::Tensor> at_rest;
  for (auto& [span, arrays] : resident) {
    at_rest.push_back(rests_elsewhere(arrays) ? arrays.low_precision : at::Tensor());
    if (!at_rest.back().defined()) continue;
    const bool is_rounded = arrays.low_precision.scalar_type() != at::kFloat;
    arrays.low_precision = is_rounded ? arrays.low_precision.to(arrays.master.device()) : at::Tensor();
  }
  optimizer_.step(resident, step_inputs);
  for (size_t i = 0; i < resident.size(); ++i) {
    if (at_rest[i].defined()) at_rest[i].copy_(resident[i].arrays.parameter(), /*non_blocking=*/true);
  }
  for (const auto& [span, arrays] : state) {
    if (!arrays.is_offloaded && arrays.stored_parameter) round_to_parameters(arrays);
  }
}

void ShardUpdate::begin_on_host(std::span<const SpanState> state, const optim::StepInputs& step_inputs) const {
  const offload::UpdateScalars scalars{step_inputs.gradient_factor, step_inputs.skip, step_inputs.applied_steps};
  host_updates_->begin(state, scalars, update_on_host(step_inputs));
}

void ShardUpdate::expect_early(const at::Tensor& factor, const at::Tensor& loss) const {
  host_updates_->expect_early(factor, loss, update_on_host(inputs({.gradient_factor = factor})));
}

// The update of a run's last step may still be running when this object is destroyed; the optimizer outlives it.
offload::HostUpdates::Update ShardUpdate::update_on_host(const optim::StepInputs& step_inputs) const {
  return [&optimizer = optimizer_, rates = step_inputs.rates, starts = step_inputs.moment_starts](
             std::span<const SpanState> states, const offload::UpdateScalars& on_host) {
    optimizer.step(states, {.rates = rates,
                            .applied_steps = on_host.applied_steps,
                            .moment_starts = starts,
                            .gradient_factor = on_host.gradient_factor,
                            .skip = on_host.skip});
  };
}

// With a loss scale the host may not know yet whether its last steps were skipped, so the device selects the learning
// rates by its own count of applied steps.
optim::StepInputs ShardUpdate::inputs(const Verdict& verdict) const {
  optim::StepInputs out{.applied_steps = verdict.applied_steps,
                        .moment_starts = rates_.moment_starts(),
                        .gradient_factor = verdict.gradient_factor,
                        .skip = verdict.skip};
  const int64_t applied = loss_scaling_.known_applied_steps();
  for (int64_t more = 0; more <= loss_scaling_.num_unknown_steps(); ++more) {
    out.rates.push_back(rates_.scaled_after(applied + more));
  }
  return out;
}

void ShardUpdate::round_masters(std::span<SpanState> state) const {
  if (keeps_masters_) return;
  for (auto& [span, arrays] : state) {
    if (!arrays.has_copy()) continue;
    arrays.master.copy_(arrays.stored_parameter ? arrays.master.to(arrays.parameter_dtype()) : arrays.low_precision);
  }
}

}  // namespace dslaunch::runtime::engine::step
