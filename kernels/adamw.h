// One Adam or AdamW step over flat fp32 arrays in a single pass. See adamw.cu.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/element_type.h"

namespace dslaunch::kernels {

// g = gradient * *gradient_factor + coupled_decay * p
// m += (g - m) * one_minus_beta1,  v = v * beta2 + g * g * one_minus_beta2
// p -= step_size * (m / (sqrt(v) * inverse_root_correction + eps)) + decoupled_decay * p
struct AdamArguments {
  float* master = nullptr;
  const float* gradient = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  void* low_precision = nullptr;  // null, or the new master rounded to low_precision_type
  ElementType low_precision_type = ElementType::kBFloat16;
  size_t count = 0;
  const float* gradient_factor = nullptr;  // one float on the device; null: 1

  float one_minus_beta1 = 0, beta2 = 0, one_minus_beta2 = 0, eps = 0;
  float step_size = 0, inverse_root_correction = 1;
  float coupled_decay = 0, decoupled_decay = 0;
};

// Enqueues on `stream`. Arrays need no alignment beyond their elements'; they are fastest when all four fp32 arrays
// have the same address modulo 16. A count of 0 launches nothing.
cudaError_t launch_adamw(const AdamArguments& arguments, cudaStream_t stream);

}  // namespace dslaunch::kernels
