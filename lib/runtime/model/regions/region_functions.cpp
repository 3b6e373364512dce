#include "runtime/model/regions/region_functions.hpp"

#include "comm/modules.hpp"

namespace dslaunch::runtime::model::regions {

const RegionFunctions& region_functions() {
  static const RegionFunctions& functions = comm::cuda_module().table<RegionFunctions>(kRegionFunctionsSymbol);
  return functions;
}

}  // namespace dslaunch::runtime::model::regions
