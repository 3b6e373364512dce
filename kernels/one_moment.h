// One step of an optimizer with at most one moment (SGD, Lion, Adagrad) over flat fp32 arrays in a single pass. See
// one_moment.cu.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/element_type.h"
#include "kernels/optimizer_coefficients.h"
#include "kernels/step_control.h"

namespace dslaunch::kernels {

template <class Values>
struct OneMomentArguments {
  float* master = nullptr;
  const void* gradient = nullptr;
  ElementType gradient_type = ElementType::kFloat32;
  float* moment = nullptr;        // SGD's momentum (null: none), Lion's average, Adagrad's sum
  void* low_precision = nullptr;  // null, or the new master rounded to low_precision_type
  ElementType low_precision_type = ElementType::kBFloat16;
  size_t count = 0;
  StepControl control;
  Coefficients<Values> coefficients;
};

using SgdArguments = OneMomentArguments<SgdCoefficients>;
using LionArguments = OneMomentArguments<LionCoefficients>;
using AdagradArguments = OneMomentArguments<AdagradCoefficients>;

// Enqueue on `stream`; alignment and a count of 0 as for launch_adamw.
cudaError_t launch_sgd(const SgdArguments& arguments, cudaStream_t stream);
cudaError_t launch_lion(const LionArguments& arguments, cudaStream_t stream);
cudaError_t launch_adagrad(const AdagradArguments& arguments, cudaStream_t stream);

}  // namespace dslaunch::kernels
