#include "runtime/model/interface/initial_values.hpp"

namespace dslaunch::runtime::model {

bool is_stride_zero(const at::Tensor& value) {
  for (int64_t dim = 0; dim < value.dim(); ++dim) {
    if (value.size(dim) > 1 && value.stride(dim) != 0) return false;  // dims of size 1 may have any stride
  }
  return value.numel() > 1;
}

}  // namespace dslaunch::runtime::model
