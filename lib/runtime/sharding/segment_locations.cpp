#include "runtime/sharding/segment_locations.hpp"

#include <algorithm>

namespace dslaunch::runtime {
namespace {

using OptionalLocation = std::optional<SegmentLocation>;

std::vector<OptionalLocation> locations_by_parameter(const ParameterTable& table, std::span<const FlatGroup> groups) {
  std::vector<OptionalLocation> out(table.parameters.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t s = 0; s < groups[g].segments.size(); ++s) {
      out[groups[g].segments[s].parameter] = {static_cast<int>(g), static_cast<int>(s)};
    }
  }
  return out;
}

}  // namespace

std::vector<std::vector<int>> groups_by_unit(const ParameterTable& table, std::span<const FlatGroup> groups) {
  std::vector<std::vector<int>> out(table.units.size());
  for (size_t i = 0; i < groups.size(); ++i) out[groups[i].unit].push_back(static_cast<int>(i));
  return out;
}

std::vector<std::vector<SegmentLocation>> locate_parameters(const ParameterTable& table,
                                                            std::span<const FlatGroup> groups) {
  const auto by_parameter = locations_by_parameter(table, groups);
  std::vector<std::vector<SegmentLocation>> locations(table.units.size());
  for (size_t unit = 0; unit < table.units.size(); ++unit) {
    for (int parameter : table.units[unit].parameters) locations[unit].push_back(by_parameter[parameter].value());
  }
  return locations;
}

std::vector<std::vector<OptionalLocation>> locate_frozen_parameters(const ParameterTable& table,
                                                                    std::span<const FlatGroup> groups) {
  const auto by_parameter = locations_by_parameter(table, groups);
  std::vector<std::vector<OptionalLocation>> locations(table.units.size());
  for (size_t unit = 0; unit < table.units.size(); ++unit) {
    for (int parameter : table.units[unit].frozen) locations[unit].push_back(by_parameter[parameter]);
    if (std::none_of(locations[unit].begin(), locations[unit].end(),
                     [](const OptionalLocation& location) { return location.has_value(); })) {
      locations[unit].clear();
    }
  }
  return locations;
}

}  // namespace dslaunch::runtime
