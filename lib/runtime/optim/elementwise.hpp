// Element-wise optimizers; see flat_optimizer.hpp. One class for all of them: they differ in their coefficients, host
// loop and kernel.
#pragma once
#include <memory>

#include "runtime/optim/flat_optimizer.hpp"

namespace dslaunch::runtime::optim {

// Adam, AdamW, SGD, Lion or Adagrad, depending on the settings of the first group (all groups have one type). With
// Muon's settings it is the AdamW for the parameters that are not matrices.
std::unique_ptr<FlatOptimizer> make_elementwise(const std::vector<OptimizerGroup>& groups);

}  // namespace dslaunch::runtime::optim
