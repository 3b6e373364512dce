#include "runtime/state/tensor_text.hpp"

#include "base/format.hpp"

namespace dslaunch::runtime {

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

std::string type_and_shape(const at::Tensor& tensor) {
  if (!tensor.defined()) return "none";
  return fmt::format("{}[{}]", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

std::string types_and_shapes(const std::vector<at::Tensor>& tensors) {
  std::string out;
  for (const auto& tensor : tensors) out += (out.empty() ? "" : ", ") + type_and_shape(tensor);
  return out;
}

}  // namespace dslaunch::runtime
