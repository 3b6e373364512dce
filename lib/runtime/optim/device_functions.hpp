// What the CUDA module does for this room: a table of functions. dsworker links no CUDA, so the first step on CUDA
// tensors opens the module and asks it for the table.
#pragma once
#include <ATen/core/Tensor.h>

#include "runtime/optim/coefficients.hpp"
#include "runtime/optim/flat_optimizer.hpp"
#include "runtime/optim/gradient_norm.hpp"

namespace dslaunch::runtime::optim {

// All of them enqueue on the current stream of the tensors' device and return; sizes, types and devices were checked
// by the caller. `factor` is 0-dim fp32 on that device, or undefined for 1. A launch that fails throws Error.
struct DeviceFunctions {
  void (*adam)(const ShardTensors& shard, const AdamCoefficients& coefficients, const at::Tensor& factor);
  void (*sgd)(const ShardTensors& shard, const SgdCoefficients& coefficients, const at::Tensor& factor);
  at::Tensor (*sum_of_squares)(at::TensorList values);  // 0-dim fp64
  ClippedNorm (*clip)(const at::Tensor& sum_of_squares, double max_norm, double gradient_scale);
  void (*accumulate)(const at::Tensor& sum, const at::Tensor& gradient);
};

// The name of the module's function `extern "C" const DeviceFunctions* f()`.
inline constexpr const char* kDeviceFunctionsSymbol = "dslaunch_cuda_optim_functions";

// Any thread. Throws UserError 69 when there is no CUDA module to open.
const DeviceFunctions& device_functions();

}  // namespace dslaunch::runtime::optim
