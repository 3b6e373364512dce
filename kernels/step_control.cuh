// The device side of step_control.h.
#pragma once
#include "kernels/step_control.h"

namespace dslaunch::kernels {

__device__ inline bool is_skipped(const StepControl& control) {
  return control.skip != nullptr && *control.skip != 0.0F;
}

__device__ inline float gradient_factor(const StepControl& control) {
  return control.gradient_factor == nullptr ? 1.0F : *control.gradient_factor;
}

template <class Values>
__device__ inline Values select_coefficients(const Coefficients<Values>& coefficients) {
  if (coefficients.table == nullptr) return coefficients.value;
  const int64_t row = *coefficients.applied_steps - coefficients.base;
  if (row < 0 || row >= coefficients.table_size) __trap();  // else it would silently use wrong numbers
  return coefficients.table[row];
}

}  // namespace dslaunch::kernels
