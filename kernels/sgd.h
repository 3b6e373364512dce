// One SGD step over flat fp32 arrays in a single pass, with or without momentum. See sgd.cu.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/element_type.h"

namespace dslaunch::kernels {

// g = gradient * *gradient_factor + coupled_decay * p
// with momentum: b = keep * b + share * g;  p -= lr * (gradient_weight * g + momentum_weight * b)
// without:       p -= lr * g
struct SgdArguments {
  float* master = nullptr;
  const float* gradient = nullptr;
  float* momentum = nullptr;      // null: without
  void* low_precision = nullptr;  // null, or the new master rounded to low_precision_type
  ElementType low_precision_type = ElementType::kBFloat16;
  size_t count = 0;
  const float* gradient_factor = nullptr;  // one float on the device; null: 1

  float lr = 0, coupled_decay = 0;
  float keep = 0, share = 1;
  float gradient_weight = 1, momentum_weight = 0;
};

// Enqueues on `stream`; alignment and a count of 0 as for launch_adamw.
cudaError_t launch_sgd(const SgdArguments& arguments, cudaStream_t stream);

}  // namespace dslaunch::kernels
