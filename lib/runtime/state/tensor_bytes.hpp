// A host tensor's bytes as text, as the store and checkpoints carry them, and back.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>

namespace dslaunch::runtime {

std::string bytes_of_tensor(const at::Tensor& host);
// 1-D, uint8.
at::Tensor tensor_of_bytes(const std::string& bytes);

}  // namespace dslaunch::runtime
