// Constants that an export baked into a model's graphs and that this run needs otherwise: devices, and the minima of
// attention masks that do not fit a half-precision type.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

namespace dslaunch::runtime {

// Devices become `device`; constant tensors move there. Units' own graphs included.
void rewrite_device_constants(const torch::jit::Module& model, at::Device device);

// Minima of masks as `dtype` can hold them (mask_minimum.hpp). One line in `notes` says what was changed.
void fit_constants(const torch::jit::Module& model, at::ScalarType dtype, std::vector<std::string>& notes);

}  // namespace dslaunch::runtime
