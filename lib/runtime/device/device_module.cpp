#include "runtime/device/device_module.hpp"

#include "comm/modules.hpp"

namespace dslaunch::runtime::device {

const DeviceModule& module() {
  static const DeviceModule& functions = comm::cuda_module().table<DeviceModule>("dslaunch_cuda_device_module");
  return functions;
}

bool is_capturing(c10::Device device) {
  return device.is_cuda() && module().is_capturing(device);
}

}  // namespace dslaunch::runtime::device
