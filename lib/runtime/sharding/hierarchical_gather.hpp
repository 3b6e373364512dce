// hpZ of ZeRO++: which ranks are one group when parameters are gathered over all ranks once a step, and then kept in
// parts inside a small group (the ranks of a host), so that the gathers of backward stay inside it. Pure arithmetic;
// any thread.
//
// A unit's flat buffer of N elements on W ranks with groups of S: at rest every rank has N/W (its part of the
// optimizer's state); from its forward to its backward also a secondary part of N/S. A backward gather moves N·(S-1)/S
// elements to each rank inside its group, and nothing between groups.
#pragma once

namespace dslaunch::runtime {

class HierarchicalGather {
 public:
  // `group_size`: zero_hpz_partition_size; 1 switches it off (one part for all of the unit would be no sharding at
  // all). Throws UserError(78) when the groups do not divide the ranks.
  HierarchicalGather(int num_ranks, int group_size);

  bool is_on() const { return group_size_ > 1 && group_size_ < num_ranks_; }
  int group_size() const { return group_size_; }
  int group_of(int rank) const { return rank / group_size_; }
  int index_in_group(int rank) const { return rank % group_size_; }

 private:
  const int num_ranks_, group_size_;
};

}  // namespace dslaunch::runtime
