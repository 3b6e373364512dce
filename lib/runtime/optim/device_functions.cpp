#include "runtime/optim/device_functions.hpp"

#include "comm/module.hpp"

namespace dslaunch::runtime::optim {

const DeviceFunctions& device_functions() {
  static const DeviceFunctions& functions = comm::Module::cuda().table<DeviceFunctions>(kDeviceFunctionsSymbol);
  return functions;
}

}  // namespace dslaunch::runtime::optim
