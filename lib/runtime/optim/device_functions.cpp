#include "runtime/optim/device_functions.hpp"

#include "comm/modules.hpp"

namespace dslaunch::runtime::optim {

const DeviceFunctions& device_functions() {
  static const DeviceFunctions& functions = comm::cuda_module().table<DeviceFunctions>(kDeviceFunctionsSymbol);
  return functions;
}

}  // namespace dslaunch::runtime::optim
