// LAMB as DeepSpeed's FusedLamb computes it: Adam's direction, scaled for each parameter by |p| / |update|.
//
// A parameter may lie on several ranks. Each rank adds up the squares of its part in double; the sums of all ranks are
// all-gathered and added in rank order, so that any sharding gives the same ratio to the last bits of a double.
#pragma once
#include <memory>

#include "runtime/optim/flat_optimizer.hpp"

namespace dslaunch::runtime::optim {

std::unique_ptr<FlatOptimizer> make_lamb(const OptimizerGroups& groups, FlatLayout layout);

}  // namespace dslaunch::runtime::optim
