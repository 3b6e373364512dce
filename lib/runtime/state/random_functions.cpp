#include "runtime/state/random_functions.hpp"

#include "comm/modules.hpp"

namespace dslaunch::runtime {

const RandomFunctions& random_functions() {
  static const RandomFunctions& functions = comm::cuda_module().table<RandomFunctions>(kRandomFunctionsSymbol);
  return functions;
}

}  // namespace dslaunch::runtime
