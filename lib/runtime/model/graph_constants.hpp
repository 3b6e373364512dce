// Constants that an export baked into a model's graphs and that this run needs otherwise: devices, and the minima of
// attention masks that do not fit a half-precision type.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

namespace dslaunch::runtime {

// Devices become `device`; constant tensors move there. Units' own graphs included.
void rewrite_device_constants(const torch::jit::Module& model, at::Device device);

// Numbers below what `dtype` (fp16 or bf16) can hold, such as fp32's minimum in a mask, become half of its minimum:
// they hide as well, and a sum of two is finite. So does fp32's maximum at the other end. Other large numbers stay:
// they may be the base of a power. One line in `notes` says what was changed.
void fit_constants(const torch::jit::Module& model, at::ScalarType dtype, std::vector<std::string>& notes);
// The same for a tensor; returns it unchanged when all of it fits.
at::Tensor fitted(const at::Tensor& value, at::ScalarType dtype);

}  // namespace dslaunch::runtime
