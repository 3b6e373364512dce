// Splits a rank's shard of a flat group into runs of one optimizer group each, with their moments.
#pragma once
#include <vector>

#include "runtime/optim/flat_optimizer.hpp"
#include "runtime/state/partition.hpp"

namespace dslaunch::runtime::optim {

// Cuts `shard` where the optimizer group changes; its flat_group and range are set, its moments are not, its gradient
// may be. `group_of` by parameter. Padding belongs to the run before it. The runs are views of the same memory, in
// order; a shard without parameters is one run.
std::vector<ShardTensors> split_by_group(const ShardTensors& shard, const FlatGroup& layout,
                                         const std::vector<int>& group_of);

// Fills run.moments with their values before the first step, at the same address modulo 16 bytes as the master, so that
// vector kernels see all arrays with the same alignment.
void allocate_moments(const FlatOptimizer& optimizer, ShardTensors& run);

}  // namespace dslaunch::runtime::optim
