// One factory per kind of optimizer; make_flat_optimizer() chooses.
#pragma once
#include <memory>

#include "runtime/optim/flat_optimizer.hpp"

namespace dslaunch::runtime::optim {

// An element-wise optimizer, depending on the settings of the first group (all groups have one type). With Muon's
// settings it is the AdamW for the parameters that are not matrices.
std::unique_ptr<FlatOptimizer> make_elementwise(const std::vector<OptimizerGroup>& groups, FlatLayout layout);
std::unique_ptr<FlatOptimizer> make_lamb(const OptimizerGroups& groups, FlatLayout layout);
std::unique_ptr<FlatOptimizer> make_adafactor(const OptimizerGroups& groups, FlatLayout layout);
std::unique_ptr<FlatOptimizer> make_adam_8bit(const OptimizerGroups& groups, FlatLayout layout);
std::unique_ptr<FlatOptimizer> make_one_bit_adam(const OptimizerGroups& groups, FlatLayout layout);
std::unique_ptr<FlatOptimizer> make_one_bit_lamb(const OptimizerGroups& groups, FlatLayout layout);
std::unique_ptr<FlatOptimizer> make_zero_one_adam(const OptimizerGroups& groups, FlatLayout layout);
std::unique_ptr<FlatOptimizer> make_muon(const OptimizerGroups& groups, FlatLayout layout);

// Muon's change of a parameter of this shape (two dims or more, with a positive number of elements) is this tensor
// times -lr, in bf16; `update` is bf16 of that shape. Four dims are a row of filters: [filters, the rest]; otherwise
// leading dims are a batch of matrices. Scaled by sqrt(max(1, rows / columns)) of the last two dims.
at::Tensor orthogonalised(const at::Tensor& update);

}  // namespace dslaunch::runtime::optim
