// Which outputs of fused regions their readers need not keep for backward, because the region can compute them again:
// activation_checkpointing.selective.
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <vector>

namespace dslaunch::runtime::model::fusion {

// Marks the outputs that only GEMMs with weights read, as their first factor, in all forwards of the model. A region
// and such a GEMM are of one call of a unit, so that the region's parameters are in their places in both backwards.
// After all passes that change who reads them. Returns their number.
int offer_outputs(const torch::jit::Module& model);

// By output of a region's node.
std::vector<bool> offered_outputs(const torch::jit::Node* region);

}  // namespace dslaunch::runtime::model::fusion
