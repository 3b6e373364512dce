// Where a run of optimizer state belongs: geometry only. Its values are StateArrays (state_arrays.hpp). Pure.
#pragma once
#include <vector>

#include "runtime/state/partition.hpp"

namespace dslaunch::runtime {

// Elements of one flat group that belong to one optimizer group.
struct StateSpan {
  int flat_group = 0;
  int optimizer_group = 0;
  Range range;  // within the flat group
  int64_t numel() const { return range.size(); }
  bool operator==(const StateSpan&) const = default;
};

// Cuts `range` of flat group `flat_group`, laid out as `group`, where the optimizer group changes. The spans are in
// order and cover the range. Padding belongs to the span before it; a range without parameters is one span.
// `optimizer_group_of`: by parameter; empty: all in group 0.
std::vector<StateSpan> plan_spans(const FlatGroup& group, int flat_group, Range range,
                                  const std::vector<int>& optimizer_group_of);

}  // namespace dslaunch::runtime
