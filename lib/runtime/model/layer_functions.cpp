#include "runtime/model/layer_functions.hpp"

#include "comm/module.hpp"

namespace dslaunch::runtime {

const LayerFunctions& layer_functions() {
  using Table = const LayerFunctions* (*)();
  static const LayerFunctions* functions =
      reinterpret_cast<Table>(comm::Module::cuda().symbol(kLayerFunctionsSymbol))();
  return *functions;
}

}  // namespace dslaunch::runtime
