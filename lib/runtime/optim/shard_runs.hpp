// From a rank's shard of a flat group to runs of one optimizer group each, with their moments.
#pragma once
#include <vector>

#include "runtime/optim/flat_optimizer.hpp"
#include "runtime/state/partition.hpp"

namespace dslaunch::runtime::optim {

// Cuts `shard` (its flat_group and range filled in, its moments not, its gradient or not) where the optimizer group
// changes; `group_of` by parameter. Padding belongs to the run before it. Views of the same memory, in order; one run
// for a shard without parameters.
std::vector<ShardTensors> cut_by_group(const ShardTensors& shard, const FlatGroup& layout,
                                       const std::vector<int>& group_of);

// Fills run.moments as they are before the first step, at the same place modulo 16 bytes as the master, so that vector
// kernels find all arrays alike.
void allocate_moments(const FlatOptimizer& optimizer, ShardTensors& run);

}  // namespace dslaunch::runtime::optim
