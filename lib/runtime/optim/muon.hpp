// Muon as DeepSpeed 0.18.2 has it: momentum, then five Newton-Schulz steps in bf16 that bring the singular values of a
// parameter's update near 1. All other parameters are stepped by Adam with decoupled weight decay.
//
// Whole matrices are needed. Where flat groups are sharded, their updates are all-gathered in bf16 (the type in which
// the iteration starts), and each rank orthogonalises the matrices that its shard touches: any world size computes from
// the same bits.
#pragma once
#include <memory>

#include "runtime/optim/flat_optimizer.hpp"

namespace dslaunch::runtime::optim {

std::unique_ptr<FlatOptimizer> make_muon(const OptimizerGroups& groups, FlatLayout layout);

// What Muon adds to a parameter of this shape (two dims and more, over a positive number of elements), times -lr, in
// bf16; `update` is bf16 of that shape. Four dims are a row of filters: [filters, the rest]; otherwise leading dims are
// a batch of matrices. Scaled by sqrt(max(1, rows / columns)) of the last two dims.
at::Tensor orthogonalised(const at::Tensor& update);

}  // namespace dslaunch::runtime::optim
