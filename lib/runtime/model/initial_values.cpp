#include "runtime/model/initial_values.hpp"

#include <algorithm>

namespace dslaunch::runtime::model {

bool is_stride_zero(const at::Tensor& value) {
  return value.numel() > 1 &&
         std::all_of(value.strides().begin(), value.strides().end(), [](int64_t stride) { return stride == 0; });
}

}  // namespace dslaunch::runtime::model
