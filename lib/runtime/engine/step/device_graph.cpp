#include "runtime/engine/step/device_graph.hpp"

#include "runtime/device/device_module.hpp"

namespace dslaunch::runtime::engine::step {

std::unique_ptr<DeviceGraph> make_device_graph(c10::Device device, const DeviceGraph* shares) {
  return device::module().graphs.make(device, shares);
}

}  // namespace dslaunch::runtime::engine::step
