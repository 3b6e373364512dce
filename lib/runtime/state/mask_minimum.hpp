// Numbers that mean "nothing" in fp32, such as its minimum in an attention mask, in a half-precision type: below what
// the type can hold, they become half of its minimum; so does fp32's maximum at the other end. They hide as well, and a
// sum of two is finite. Other large numbers stay: they may be the base of a power. Pure.
#pragma once
#include <ATen/core/Tensor.h>

namespace dslaunch::runtime {

bool is_half(at::ScalarType dtype);  // fp16 or bf16: the types that all of this is about

// What such a number becomes in `dtype`; any other comes back as it is.
double fitted(double value, at::ScalarType dtype);
// The same for a tensor; returns it unchanged when all of it fits.
at::Tensor fitted(const at::Tensor& value, at::ScalarType dtype);

}  // namespace dslaunch::runtime
