// Converts fp32 numbers that mean "masked", such as its minimum in an attention mask, to a half-precision type. Values
// below the type's range become half of the type's minimum; fp32's maximum becomes half of the type's maximum. The
// results still mask, and a sum of two is finite. Other large numbers stay: they may be the base of a power. Pure.
#pragma once
#include <ATen/core/Tensor.h>

namespace dslaunch::runtime {

bool is_half(at::ScalarType dtype);  // fp16 or bf16: the types that this file handles

// The replacement of such a number in `dtype`; any other number is returned unchanged.
double fitted(double value, at::ScalarType dtype);
// The same for a tensor; returns it unchanged when all of its elements fit.
at::Tensor fitted(const at::Tensor& value, at::ScalarType dtype);

}  // namespace dslaunch::runtime
