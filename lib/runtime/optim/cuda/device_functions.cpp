// The CUDA module's table for lib/runtime/optim: extracts pointers and sizes from tensors and launches the kernels on
// the current stream of the tensors' device. Part of the module, never of dsworker itself.
#include "runtime/optim/device_functions.hpp"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>

#include <vector>

#include "kernels/clip_factor.h"
#include "kernels/element_step.h"
#include "kernels/lamb.h"
#include "kernels/sum_of_squares.h"
#include "runtime/device/cuda/function_tables.hpp"
#include "runtime/device/cuda/launch.hpp"

namespace dslaunch::runtime::optim {
namespace {

const float* float_data(const at::Tensor& scalar) {
  return scalar.defined() ? scalar.const_data_ptr<float>() : nullptr;
}

// All argument types use the same names for these fields.
template <class Arguments, class Coefficients>
Arguments arguments_of(const StateArrays& arrays, const DeviceCoefficients<Coefficients>& coefficients,
                       const StepInputs& inputs) {
  Arguments arguments;
  arguments.master = arrays.master.mutable_data_ptr<float>();
  arguments.gradient = arrays.gradient.const_data_ptr();
  arguments.gradient_type = element_type(arrays.gradient.scalar_type());
  if (arrays.low_precision.defined()) {
    arguments.low_precision = arrays.low_precision.mutable_data_ptr();
    arguments.low_precision_type = element_type(arrays.low_precision.scalar_type());
  }
  arguments.count = static_cast<size_t>(arrays.master.numel());
  arguments.control = {float_data(inputs.gradient_factor), float_data(inputs.skip)};
  arguments.coefficients.value = coefficients.value;
  if (coefficients.table.defined()) {
    arguments.coefficients.table = static_cast<const Coefficients*>(coefficients.table.const_data_ptr());
    arguments.coefficients.applied_steps = inputs.applied_steps.const_data_ptr<int64_t>();
    arguments.coefficients.base = coefficients.base;
    arguments.coefficients.table_size = coefficients.table.numel() / static_cast<int64_t>(sizeof(Coefficients));
  }
  return arguments;
}

template <class Rule>
void element_step(const StateArrays& arrays, const DeviceCoefficients<typename Rule::Values>& coefficients,
                  const StepInputs& inputs) {
  const c10::cuda::CUDAGuard guard(arrays.master.device());
  auto arguments = arguments_of<kernels::ElementArguments<Rule>>(arrays, coefficients, inputs);
  for (size_t i = 0; i < arrays.moments.size(); ++i) {
    arguments.moments[i] = arrays.moments[i].mutable_data_ptr<float>();
  }
  check_launch(kernels::launch_element_step(arguments, stream_of(arrays.master)), "element_step", arrays.master);
}

kernels::LambArguments lamb_arguments(const ParameterPart& part,
                                      const DeviceCoefficients<LambCoefficients>& coefficients,
                                      const StepInputs& inputs) {
  auto arguments = arguments_of<kernels::LambArguments>(part.arrays, coefficients, inputs);
  arguments.exp_avg = part.arrays.moments[0].mutable_data_ptr<float>();
  arguments.exp_avg_sq = part.arrays.moments[1].mutable_data_ptr<float>();
  return arguments;
}

at::Tensor lamb_moments(std::span<const ParameterPart> parts, int64_t num_parameters,
                        std::span<const DeviceCoefficients<LambCoefficients>> by_set, const StepInputs& inputs,
                        at::Device device, DeviceFunctions::NumbersOnDevice on_device) {
  const c10::cuda::CUDAGuard guard(device);
  const auto doubles = at::TensorOptions().dtype(at::kDouble).device(device);
  at::Tensor sums = at::zeros({num_parameters, 2}, doubles);
  if (parts.empty()) return sums;
  std::vector<int64_t> ends, owners;
  int64_t num_partials = 0;
  for (const auto& part : parts) {
    num_partials += static_cast<int64_t>(kernels::num_lamb_partials(static_cast<size_t>(part.arrays.master.numel())));
    ends.push_back(num_partials);
    owners.push_back(part.parameter);
  }
  at::Tensor partials = at::zeros({num_partials, 2}, doubles);  // a skipped step does not write them
  auto* const first = static_cast<kernels::LambSums*>(partials.mutable_data_ptr());
  for (size_t i = 0; i < parts.size(); ++i) {
    const at::Tensor& master = parts[i].arrays.master;
    const auto arguments = lamb_arguments(parts[i], by_set[static_cast<size_t>(parts[i].coefficients)], inputs);
    check_launch(kernels::launch_lamb_moments(arguments, first + (i == 0 ? 0 : ends[i - 1]), stream_of(master)),
                 "lamb_moments", master);
  }
  at::Tensor by_part = at::empty({static_cast<int64_t>(parts.size()), 2}, doubles);
  const at::Tensor ends_there = on_device(ends, device);
  check_launch(
      kernels::launch_lamb_sums(first, ends_there.const_data_ptr<int64_t>(), parts.size(),
                                static_cast<kernels::LambSums*>(by_part.mutable_data_ptr()), stream_of(by_part)),
      "lamb_sums", partials);
  return sums.index_copy_(0, on_device(owners, device), by_part);
}

at::Tensor lamb_ratios(const at::Tensor& sums, const LambCoefficients& bounds) {
  const c10::cuda::CUDAGuard guard(sums.device());
  at::Tensor ratios = at::empty({sums.size(1)}, sums.options().dtype(at::kFloat));
  check_launch(kernels::launch_lamb_ratios(static_cast<const kernels::LambSums*>(sums.const_data_ptr()),
                                           static_cast<size_t>(sums.size(0)), static_cast<size_t>(sums.size(1)),
                                           bounds.min_ratio, bounds.max_ratio, ratios.mutable_data_ptr<float>(),
                                           stream_of(sums)),
               "lamb_ratios", sums);
  return ratios;
}

void lamb(const ParameterPart& part, const DeviceCoefficients<LambCoefficients>& coefficients, const at::Tensor& ratios,
          const StepInputs& inputs) {
  const at::Tensor& master = part.arrays.master;
  const c10::cuda::CUDAGuard guard(master.device());
  check_launch(kernels::launch_lamb(lamb_arguments(part, coefficients, inputs),
                                    ratios.const_data_ptr<float>() + part.parameter, stream_of(master)),
               "lamb", master);
}

at::Tensor sum_of_squares_on_device(at::TensorList values) {
  const c10::cuda::CUDAGuard guard(values[0].device());
  const auto doubles = at::TensorOptions().dtype(at::kDouble).device(values[0].device());
  size_t num_partials = 0;
  for (const at::Tensor& tensor : values) {
    num_partials += kernels::num_square_partials(static_cast<size_t>(tensor.numel()));
  }
  at::Tensor partials = at::empty({static_cast<int64_t>(num_partials)}, doubles);
  double* next = partials.mutable_data_ptr<double>();
  for (const at::Tensor& tensor : values) {
    const auto count = static_cast<size_t>(tensor.numel());
    check_launch(kernels::launch_square_partials(tensor.const_data_ptr(), element_type(tensor.scalar_type()), count,
                                                 next, stream_of(tensor)),
                 "square_partials", tensor);
    next += kernels::num_square_partials(count);
  }
  at::Tensor sum = at::empty({}, doubles);
  check_launch(kernels::launch_sum_partials(partials.const_data_ptr<double>(), num_partials,
                                            sum.mutable_data_ptr<double>(), stream_of(sum)),
               "sum_partials", partials);
  return sum;
}

ClippedNorm clip(const at::Tensor& sum_of_squares, double max_norm, double gradient_scale) {
  const c10::cuda::CUDAGuard guard(sum_of_squares.device());
  const auto options = sum_of_squares.options();
  ClippedNorm clipped{.norm = at::empty({}, options), .factor = at::empty({}, options.dtype(at::kFloat))};
  check_launch(kernels::launch_clip_factor(sum_of_squares.const_data_ptr<double>(), max_norm, gradient_scale,
                                           clipped.norm.mutable_data_ptr<double>(),
                                           clipped.factor.mutable_data_ptr<float>(), stream_of(sum_of_squares)),
               "clip_factor", sum_of_squares);
  return clipped;
}

}  // namespace

#define DSL_STEP_OF(Rule) DeviceFunctions::ElementStep<kernels::Rule>{element_step<kernels::Rule>},
const DeviceFunctions kDeviceFunctions{.element_steps = {DSL_ELEMENT_RULES(DSL_STEP_OF) std::monostate()},
                                       .lamb_moments = lamb_moments,
                                       .lamb_ratios = lamb_ratios,
                                       .lamb = lamb,
                                       .sum_of_squares = sum_of_squares_on_device,
                                       .clip = clip};
#undef DSL_STEP_OF

}  // namespace dslaunch::runtime::optim
