// One Lion step over flat fp32 arrays in a single pass. See lion.cu.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/element_type.h"
#include "kernels/optimizer_coefficients.h"
#include "kernels/step_control.h"

namespace dslaunch::kernels {

struct LionArguments {
  float* master = nullptr;
  const float* gradient = nullptr;
  float* exp_avg = nullptr;
  void* low_precision = nullptr;  // null, or the new master rounded to low_precision_type
  ElementType low_precision_type = ElementType::kBFloat16;
  size_t count = 0;
  StepControl control;
  Coefficients<LionCoefficients> coefficients;
};

// Enqueues on `stream`; alignment and a count of 0 as for launch_adamw.
cudaError_t launch_lion(const LionArguments& arguments, cudaStream_t stream);

}  // namespace dslaunch::kernels
