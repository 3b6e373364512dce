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

// Arithmetic on sizes that goes through tensors becomes arithmetic on integers. A trace stores `x.shape[-1] // 2` as a
// 0-dim tensor on the CPU, and the number 2 as another, which moves to the run's device: reading the result back waits
// for the device, and ends the capture of a CUDA graph.
//
// Replaces reads of such tensors (aten::Int, aten::item and others) by the integers that they were computed from, and
// removes the tensors that nothing else uses. Results stay the same. Leaves alone what an operator may write to, and
// what passes through a call or a container.
void rewrite_size_arithmetic(const torch::jit::Module& model);

}  // namespace dslaunch::runtime::model::rewrites
