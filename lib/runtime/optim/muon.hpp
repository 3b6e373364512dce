// Muon as in DeepSpeed 0.18.2: momentum, then five Newton-Schulz steps in bf16 that bring the singular values of a
// parameter's update near 1. All other parameters are updated by Adam with decoupled weight decay.
//
// Muon needs whole matrices. Where flat groups are sharded, their updates are all-gathered in bf16 (the type in which
// the iteration starts), and each rank orthogonalizes the matrices that its shard touches: any world size computes from
// the same bits.
#pragma once
#include <memory>

#include "runtime/optim/flat_optimizer.hpp"

namespace dslaunch::runtime::optim {

std::unique_ptr<FlatOptimizer> make_muon(const OptimizerGroups& groups, FlatLayout layout);

// Muon's change of a parameter of this shape (two dims or more, with a positive number of elements) is this tensor
// times -lr, in bf16; `update` is bf16 of that shape. Four dims are a row of filters: [filters, the rest]; otherwise
// leading dims are a batch of matrices. Scaled by sqrt(max(1, rows / columns)) of the last two dims.
at::Tensor orthogonalised(const at::Tensor& update);

}  // namespace dslaunch::runtime::optim
