#include "runtime/model/layer_functions.hpp"

#include "comm/module.hpp"

namespace dslaunch::runtime {

const LayerFunctions& layer_functions() {
  static const LayerFunctions& functions = comm::Module::cuda().table<LayerFunctions>(kLayerFunctionsSymbol);
  return functions;
}

}  // namespace dslaunch::runtime
