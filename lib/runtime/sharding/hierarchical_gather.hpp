// hpZ of ZeRO++: who holds what when parameters are gathered over all ranks once a step, and then kept in parts inside
// a small group (the ranks of a host), so that the gathers of backward stay inside it. Pure arithmetic; any thread.
//
// A unit's flat buffer of N elements on W ranks with groups of S: at rest every rank has N/W (its part of the
// optimizer's state); from its forward to its backward also a secondary part of N/S. A backward gather moves N·(S-1)/S
// elements to each rank inside its group, and nothing between groups.
#pragma once
#include <cstdint>
#include <vector>

#include "runtime/state/partition.hpp"

namespace dslaunch::runtime {

class HierarchicalGather {
 public:
  // `group_size`: zero_hpz_partition_size; 1 switches it off (one part for all of the unit would be no sharding at
  // all). Throws UserError(78) when the groups do not divide the ranks.
  HierarchicalGather(int num_ranks, int group_size);

  bool is_on() const { return group_size_ > 1 && group_size_ < num_ranks_; }
  int group_size() const { return group_size_; }
  int num_groups() const { return num_ranks_ / group_size_; }
  int group_of(int rank) const { return rank / group_size_; }
  int index_in_group(int rank) const { return rank % group_size_; }
  // The ranks that a secondary gather of this rank runs over, ascending.
  std::vector<int> members(int rank) const;

  // What a rank keeps of a flat buffer at rest, and of a unit between its forward and its backward.
  Range primary(const FlatGroup& group, int rank) const;
  Range secondary(const FlatGroup& group, int rank) const;
  // Elements of this group's memory beyond those of plain sharding; 0 when it is off.
  int64_t extra_numel(const FlatGroup& group) const;

 private:
  const int num_ranks_, group_size_;
};

}  // namespace dslaunch::runtime
