#include "runtime/engine/step/device_graph.hpp"

#include "comm/modules.hpp"

namespace dslaunch::runtime::engine::step {

std::unique_ptr<DeviceGraph> make_device_graph(c10::Device device, const DeviceGraph* shares) {
  return comm::cuda_module().table<GraphFunctions>(kGraphFunctionsSymbol).make(device, shares);
}

}  // namespace dslaunch::runtime::engine::step
