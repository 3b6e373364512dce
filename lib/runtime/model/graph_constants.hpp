// Constants that an export baked into a model's graphs and that this run needs otherwise: devices, the minima of
// attention masks that do not fit a half-precision type, and numbers that a file has as tensors.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

namespace dslaunch::runtime {

// Devices become `device`; constant tensors move there. Units' own graphs included.
void rewrite_device_constants(const torch::jit::Module& model, at::Device device);

// Minima of masks as `dtype` can hold them (mask_minimum.hpp). One line in `notes` says what was changed.
void fit_constants(const torch::jit::Module& model, at::ScalarType dtype, std::vector<std::string>& notes);

// A trace has the numbers of its Python code as tensors without dims, in 64 bits, and a file forgets that they were
// numbers: `0.1 * loss` would become float64, and so would `0.1 * positions` and fail at the next layer. They take the
// type of what they meet again, as in Python and in PyTorch's own optimised run of the file. After the other two.
void restore_numbers(const torch::jit::Module& model);

}  // namespace dslaunch::runtime
