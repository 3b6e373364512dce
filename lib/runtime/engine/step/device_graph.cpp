#include "runtime/engine/step/device_graph.hpp"

#include "comm/modules.hpp"

namespace dslaunch::runtime::engine::step {

std::unique_ptr<DeviceGraph> make_device_graph(c10::Device device) {
  return comm::cuda_module().table<GraphFunctions>(kGraphFunctionsSymbol).make(device);
}

}  // namespace dslaunch::runtime::engine::step
