// Optimizers that look at one element at a time; see flat_optimizer.hpp. One class for all of them: they differ in
// their coefficients, their host loop and their kernel.
#pragma once
#include <memory>

#include "runtime/optim/flat_optimizer.hpp"

namespace dslaunch::runtime::optim {

// Adam, AdamW, SGD, Lion or Adagrad, by the settings of the first group (all groups have one type); Muon's settings
// give the AdamW of the parameters that are no matrices.
std::unique_ptr<FlatOptimizer> make_elementwise(const std::vector<OptimizerGroup>& groups);

}  // namespace dslaunch::runtime::optim
