// Which slices of a gradient buffer a GEMM can write itself.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dslaunch::runtime {

// Whether a GEMM of type `factors` can be computed in the type `sum`. On GPUs a sum in fp32 takes
// GEMMs of bf16 unrounded; not those of fp16, whose overflow in a gradient is what a loss scale reacts to.
inline bool holds_gemms(at::ScalarType sum, at::ScalarType factors, at::Device device) {
  return sum == factors || (device.is_cuda() && sum == at::kFloat && factors == at::kBFloat16);
}

// On the CPU a run has the same bits at every stage (docs/numerics.md), so that all of them must write the same
// GEMMs: those of the first call of a unit in a step, in which sums are empty, and only where sums over calls have
// the type of the buffer as well. A GEMM that is added as it comes is rounded in another order than with autograd's
// sum of a call.
inline bool keeps_bits(at::ScalarType sum, at::ScalarType factors, at::Device device, bool is_first_call) {
  return !device.is_cpu() || (is_first_call && sum == factors);
}

// cuBLAS has its fast kernels for addresses that are multiples of 16.
inline bool is_fast_to_write(const at::Tensor& slice) {
  return !slice.is_cuda() || reinterpret_cast<std::uintptr_t>(slice.const_data_ptr()) % 16 == 0;
}

}  // namespace dslaunch::runtime
