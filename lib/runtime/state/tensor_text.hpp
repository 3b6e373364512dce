// Text about tensors for messages.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace dslaunch::runtime {

std::string shape_text(const std::vector<int64_t>& shape);             // "(36, 6)"
std::string type_and_shape(const at::Tensor& tensor);                  // "Float[36, 6]"; "none" for an undefined one
std::string types_and_shapes(const std::vector<at::Tensor>& tensors);  // "Float[36, 6], Long[36]"

}  // namespace dslaunch::runtime
