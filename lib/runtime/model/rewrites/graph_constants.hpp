// Rewrites constants that an export baked into a model's graphs and that this run needs changed: devices, attention
// mask minima that do not fit a half-precision dtype, and numbers that a file stores as tensors.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

namespace dslaunch::runtime::model::rewrites {

// Replaces devices by `device`; constant tensors move there. Includes the units' own graphs.
void rewrite_device_constants(const torch::jit::Module& model, at::Device device);

// Replaces mask minima by values that `dtype` can hold (mask_minimum.hpp). Adds one line to `notes` about the changes.
void fit_constants(const torch::jit::Module& model, at::ScalarType dtype, std::vector<std::string>& notes);

// A trace stores the numbers of its Python code as 0-dim tensors in 64 bits, and a file does not record that they were
// numbers: `0.1 * loss` would become float64, and `0.1 * positions` would as well and fail at the next layer.
// Afterwards they take the dtype of the other operand again, as in Python and in PyTorch's own optimised execution of
// the file. Call after the other two.
void restore_numbers(const torch::jit::Module& model);

}  // namespace dslaunch::runtime::model::rewrites
