#include "runtime/optim/device_functions.hpp"

#include "comm/module.hpp"

namespace dslaunch::runtime::optim {

const DeviceFunctions& device_functions() {
  using Table = const DeviceFunctions* (*)();
  static const DeviceFunctions* functions =
      reinterpret_cast<Table>(comm::Module::cuda().symbol(kDeviceFunctionsSymbol))();
  return *functions;
}

}  // namespace dslaunch::runtime::optim
