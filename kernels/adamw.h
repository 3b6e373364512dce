// One Adam or AdamW step over flat fp32 arrays in a single pass. See adamw.cu.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/element_type.h"
#include "kernels/optimizer_coefficients.h"
#include "kernels/step_control.h"

namespace dslaunch::kernels {

struct AdamArguments {
  float* master = nullptr;
  const void* gradient = nullptr;
  ElementType gradient_type = ElementType::kFloat32;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  float* max_exp_avg_sq = nullptr;  // null: no AMSGrad
  void* low_precision = nullptr;  // null, or the new master rounded to low_precision_type
  ElementType low_precision_type = ElementType::kBFloat16;
  size_t count = 0;
  StepControl control;
  Coefficients<AdamCoefficients> coefficients;
};

// Enqueues on `stream`. Arrays need no alignment beyond that of their elements; the kernel is fastest when all fp32
// arrays have the same address modulo 16, and arrays of 16 bits half of that modulo 8. A count of 0 launches nothing.
cudaError_t launch_adamw(const AdamArguments& arguments, cudaStream_t stream);

}  // namespace dslaunch::kernels
