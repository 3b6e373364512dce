// What a step does before it touches an element: checks its inputs, and selects its coefficients on the host or lays
// them out for the device to select.
#pragma once
#include <ATen/ATen.h>

#include <vector>

#include "runtime/optim/device_functions.hpp"
#include "runtime/optim/flat_optimizer.hpp"
#include "runtime/optim/host_update.hpp"
#include "runtime/state/pinned_memory.hpp"

namespace dslaunch::runtime::optim {

// Both throw InternalError.
void check_inputs(const StepInputs& inputs, at::Device device);
// Arrays on `device`, of an optimizer with this many groups and moments.
void check_state(const SpanState& state, at::Device device, size_t num_groups, size_t num_moments);

// For host tensors: reads their values.
bool is_skipped(const StepInputs& inputs);
float gradient_factor(const StepInputs& inputs);
const StepRates& select_rates(const StepInputs& inputs);
host::Range host_range(const StateArrays& arrays);

// Copies the values, rounded to the type of `to`, unless `skip` (0-dim fp32 on the device; undefined: 0) is not 0.
void write_unless_skipped(const at::Tensor& to, const at::Tensor& values, const at::Tensor& skip);
// The same for the master and the parameter that is a copy of it.
void write_parameter(const StateArrays& arrays, const at::Tensor& values, const at::Tensor& skip);

// By set of coefficients (moment_starts.hpp); `coefficients_of(set, rates)`. One asynchronous copy to the device for
// all of them; LibTorch keeps the pinned memory until the copy is done.
template <class Coefficients, class Make>
std::vector<DeviceCoefficients<Coefficients>> device_coefficients(size_t num_sets, const StepInputs& inputs,
                                                                  at::Device device, const Make& coefficients_of) {
  std::vector<DeviceCoefficients<Coefficients>> out;
  const int64_t base = inputs.rates[0].step - 1;
  for (size_t set = 0; set < num_sets; ++set) {
    out.push_back({.value = coefficients_of(set, inputs.rates[0]), .base = base});
  }
  if (!inputs.applied_steps.defined()) return out;
  const auto rows_bytes = static_cast<int64_t>(inputs.rates.size() * sizeof(Coefficients));
  at::Tensor rows = host_memory_for(device, {static_cast<int64_t>(num_sets), rows_bytes}, at::kByte);
  auto* row = static_cast<Coefficients*>(rows.mutable_data_ptr());
  for (size_t set = 0; set < num_sets; ++set) {
    for (const StepRates& rates : inputs.rates) *row++ = coefficients_of(set, rates);
  }
  const at::Tensor table = rows.to(device, /*non_blocking=*/true);
  for (size_t set = 0; set < num_sets; ++set) out[set].table = table.select(0, static_cast<int64_t>(set));
  return out;
}

}  // namespace dslaunch::runtime::optim
