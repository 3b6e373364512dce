#include "runtime/memory_plan/deepspeed_estimates.hpp"

#include <algorithm>
#include <cmath>

namespace dslaunch::runtime::memory_plan {
namespace {

// Bytes of a parameter: fp32 as a model is built; 16-bit and its share of gradients and state once it is partitioned.
constexpr double kFp32 = 4, k16Bit = 2, kState = 16;

int total_gpus(const EstimateInputs& inputs) {
  return inputs.gpus_per_host * inputs.num_hosts;
}

// Every process of a host builds the whole model.
double whole_models(const EstimateInputs& inputs) {
  return kFp32 * static_cast<double>(inputs.num_parameters) * inputs.gpus_per_host;
}

Estimate zero3(const EstimateInputs& inputs, bool offloads_parameters, bool offloads_optimizer, bool builds_sharded) {
  const auto parameters = static_cast<double>(inputs.num_parameters), layer = static_cast<double>(inputs.largest_layer);
  const double on_gpu = (offloads_parameters ? 0 : k16Bit) + (offloads_optimizer ? 0 : kState);
  const double on_host = k16Bit + kState - on_gpu;
  const double share_of_host = on_host * parameters / inputs.num_hosts;
  double host = builds_sharded ? share_of_host : std::max(whole_models(inputs), share_of_host);
  if (!offloads_optimizer) host = builds_sharded ? kFp32 * layer * inputs.gpus_per_host : whole_models(inputs);
  return {.offloads_parameters = offloads_parameters,
          .offloads_optimizer = offloads_optimizer,
          .builds_sharded = builds_sharded,
          .host_bytes = host * inputs.buffer_factor,
          .gpu_bytes = kFp32 * layer + std::floor(on_gpu * parameters / total_gpus(inputs))};
}

}  // namespace

std::vector<Estimate> estimate_zero2(const EstimateInputs& inputs) {
  const auto parameters = static_cast<double>(inputs.num_parameters);
  const double offloaded_host = parameters * std::max(kFp32 * total_gpus(inputs), kState);
  return {{.offloads_optimizer = true,
           .host_bytes = offloaded_host * inputs.buffer_factor,
           .gpu_bytes = k16Bit * parameters},
          {.host_bytes = whole_models(inputs) * inputs.buffer_factor,
           .gpu_bytes = k16Bit * parameters + std::floor((k16Bit + kState) * parameters / total_gpus(inputs))}};
}

std::vector<Estimate> estimate_zero3(const EstimateInputs& inputs) {
  std::vector<Estimate> out;
  for (const auto& [parameters, optimizer] : {std::pair{true, true}, {false, true}, {false, false}}) {
    for (const bool builds_sharded : {true, false}) out.push_back(zero3(inputs, parameters, optimizer, builds_sharded));
  }
  return out;
}

}  // namespace dslaunch::runtime::memory_plan
