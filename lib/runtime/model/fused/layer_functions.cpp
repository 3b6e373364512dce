#include "runtime/model/fused/layer_functions.hpp"

#include <ATen/ATen.h>

#include "comm/modules.hpp"

namespace dslaunch::runtime::model::fused {

const LayerFunctions& layer_functions() {
  static const LayerFunctions& functions = comm::cuda_module().table<LayerFunctions>(kLayerFunctionsSymbol);
  return functions;
}

at::Tensor sum_columns(const at::Tensor& rows) {
  if (at::GradMode::is_enabled()) return rows.sum(0);
  at::Tensor sums = at::empty({rows.size(1)}, rows.options());
  layer_functions().column_sums(rows.contiguous(), sums);
  return sums;
}

}  // namespace dslaunch::runtime::model::fused
