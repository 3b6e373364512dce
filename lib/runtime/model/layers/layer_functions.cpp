#include "runtime/model/layers/layer_functions.hpp"

#include <ATen/ATen.h>

#include "runtime/device/device_module.hpp"

namespace dslaunch::runtime::model::layers {

at::Tensor sum_columns(const at::Tensor& rows) {
  if (at::GradMode::is_enabled()) return rows.sum(0);
  at::Tensor sums = at::empty({rows.size(1)}, rows.options());
  device::module().layers.column_sums(rows.contiguous(), sums);
  return sums;
}

}  // namespace dslaunch::runtime::model::layers
