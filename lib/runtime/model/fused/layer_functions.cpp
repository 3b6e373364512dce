#include "runtime/model/fused/layer_functions.hpp"

#include "comm/modules.hpp"

namespace dslaunch::runtime::model::fused {

const LayerFunctions& layer_functions() {
  static const LayerFunctions& functions = comm::cuda_module().table<LayerFunctions>(kLayerFunctionsSymbol);
  return functions;
}

}  // namespace dslaunch::runtime::model::fused
