// Group and segment of each of a unit's parameters. Pure.
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
// By unit, in the order of UnitInfo::frozen; empty for parameters in no group. A unit with none in a group has an empty
// list.
std::vector<std::vector<std::optional<ParameterPlaceInGroup>>> find_frozen_places(const ParameterTable& table,
                                                                                  std::span<const FlatGroup> groups);

}  // namespace dslaunch::runtime
