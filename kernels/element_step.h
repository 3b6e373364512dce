// One step of an element-wise optimizer over flat fp32 arrays in a single pass: one kernel for each rule of
// optimizer_rules.h. See element_step.cu.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/element_type.h"
#include "kernels/optimizer_rules.h"
#include "kernels/step_control.h"

namespace dslaunch::kernels {

template <class Rule>
struct ElementArguments {
  float* master = nullptr;
  const void* gradient = nullptr;
  ElementType gradient_type = ElementType::kFloat32;
  float* moments[kMaxMoments] = {};  // the rule's
  void* low_precision = nullptr;     // null, or the new master rounded to low_precision_type
  ElementType low_precision_type = ElementType::kBFloat16;
  size_t count = 0;
  StepControl control;
  Coefficients<typename Rule::Values> coefficients;
};

// Enqueues on `stream`. Arrays need no alignment beyond that of their elements; the kernel is fastest when all fp32
// arrays have the same address modulo 16, and arrays of 16 bits half of that modulo 8. A count of 0 launches nothing.
template <class Rule>
cudaError_t launch_element_step(const ElementArguments<Rule>& arguments, cudaStream_t stream);

}  // namespace dslaunch::kernels
