// Where a unit's parameters lie: group and segment of each. Pure.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "runtime/state/partition.hpp"

namespace dslaunch::runtime {

struct ParameterPlaceInGroup {
  int group = 0;
  int segment = 0;
};

// By unit, in the order of UnitInfo::parameters.
std::vector<std::vector<ParameterPlaceInGroup>> find_places(const ParameterTable& table,
                                                            std::span<const FlatGroup> groups);
// By unit, in the order of UnitInfo::frozen; nothing for those in no group. A unit that has none in a group has an
// empty list.
std::vector<std::vector<std::optional<ParameterPlaceInGroup>>> find_frozen_places(const ParameterTable& table,
                                                                                  std::span<const FlatGroup> groups);

}  // namespace dslaunch::runtime
