#include "runtime/sharding/parameter_places.hpp"

namespace dslaunch::runtime {

std::vector<std::vector<ParameterPlaceInGroup>> find_places(const ParameterTable& table,
                                                            const std::vector<FlatGroup>& groups) {
  std::vector<ParameterPlaceInGroup> by_parameter(table.parameters.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t s = 0; s < groups[g].segments.size(); ++s) {
      by_parameter[groups[g].segments[s].parameter] = {static_cast<int>(g), static_cast<int>(s)};
    }
  }
  std::vector<std::vector<ParameterPlaceInGroup>> places(table.units.size());
  for (size_t unit = 0; unit < table.units.size(); ++unit) {
    for (int parameter : table.units[unit].parameters) places[unit].push_back(by_parameter[parameter]);
  }
  return places;
}

}  // namespace dslaunch::runtime
