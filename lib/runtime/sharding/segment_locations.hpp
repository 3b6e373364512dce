// Groups of each unit; group and segment of each of a unit's parameters. Pure.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "runtime/state/partition.hpp"

namespace dslaunch::runtime {

struct SegmentLocation {
  int group = 0;
  int segment = 0;
};

// By unit, the indices of its groups in ascending order.
std::vector<std::vector<int>> groups_by_unit(const ParameterTable& table, std::span<const FlatGroup> groups);
// By unit, in the order of UnitInfo::parameters.
std::vector<std::vector<SegmentLocation>> locate_parameters(const ParameterTable& table,
                                                            std::span<const FlatGroup> groups);
// By unit, in the order of UnitInfo::frozen; empty for parameters in no group. A unit with none in a group has an empty
// list.
std::vector<std::vector<std::optional<SegmentLocation>>> locate_frozen_parameters(const ParameterTable& table,
                                                                                  std::span<const FlatGroup> groups);

}  // namespace dslaunch::runtime
