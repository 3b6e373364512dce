// hpZ of ZeRO++: which ranks form a group when parameters are gathered over all ranks once a step and then kept in
// parts inside a small group (the ranks of a host), so that the gathers of backward stay inside that group. Pure
// arithmetic; any thread.
//
// A unit's flat buffer of N elements on W ranks with groups of S: at rest every rank has N/W (its part of the
// optimizer's state); from its forward to its backward also a secondary part of N/S. A backward gather moves N·(S-1)/S
// elements to each rank inside its group, and nothing between groups.
#pragma once
#include <cstdint>
#include <optional>

namespace dslaunch::runtime {

struct HpzGroup {
  int group = 0;  // index of the group
  int index = 0;  // of the rank in it
  int size = 1;   // ranks in it
};

// The group of a rank; `partition_size` is zero_hpz_partition_size. Empty when hpZ is off: for a partition size of 1,
// or of all ranks, which is plain sharding. Throws UserError(78) when the ranks do not divide into groups of that size.
std::optional<HpzGroup> hpz_group(int rank, int num_ranks, int64_t partition_size);

}  // namespace dslaunch::runtime
