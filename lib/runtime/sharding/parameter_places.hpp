// Where a unit's parameters lie: group and segment of each, in the order of UnitInfo::parameters. Pure.
#pragma once
#include <vector>

#include "runtime/state/partition.hpp"

namespace dslaunch::runtime {

struct ParameterPlaceInGroup {
  int group = 0;
  int segment = 0;
};

// By unit, by parameter of the unit.
std::vector<std::vector<ParameterPlaceInGroup>> find_places(const ParameterTable& table,
                                                            const std::vector<FlatGroup>& groups);

}  // namespace dslaunch::runtime
