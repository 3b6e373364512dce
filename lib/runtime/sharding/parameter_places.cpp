#include "runtime/sharding/parameter_places.hpp"

#include <algorithm>

namespace dslaunch::runtime {
namespace {

using Place = std::optional<ParameterPlaceInGroup>;

std::vector<Place> places_by_parameter(const ParameterTable& table, std::span<const FlatGroup> groups) {
  std::vector<Place> out(table.parameters.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t s = 0; s < groups[g].segments.size(); ++s) {
      out[groups[g].segments[s].parameter] = {static_cast<int>(g), static_cast<int>(s)};
    }
  }
  return out;
}

}  // namespace

std::vector<std::vector<ParameterPlaceInGroup>> find_places(const ParameterTable& table,
                                                            std::span<const FlatGroup> groups) {
  const auto by_parameter = places_by_parameter(table, groups);
  std::vector<std::vector<ParameterPlaceInGroup>> places(table.units.size());
  for (size_t unit = 0; unit < table.units.size(); ++unit) {
    for (int parameter : table.units[unit].parameters) places[unit].push_back(by_parameter[parameter].value());
  }
  return places;
}

std::vector<std::vector<Place>> find_frozen_places(const ParameterTable& table, std::span<const FlatGroup> groups) {
  const auto by_parameter = places_by_parameter(table, groups);
  std::vector<std::vector<Place>> places(table.units.size());
  for (size_t unit = 0; unit < table.units.size(); ++unit) {
    for (int parameter : table.units[unit].frozen) places[unit].push_back(by_parameter[parameter]);
    if (std::none_of(places[unit].begin(), places[unit].end(), [](const Place& place) { return place.has_value(); })) {
      places[unit].clear();
    }
  }
  return places;
}

}  // namespace dslaunch::runtime
