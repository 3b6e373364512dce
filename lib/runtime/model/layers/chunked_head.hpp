// The pass that brings a model's head and its cross entropy together (fused_operators.hpp: chunked_cross_entropy()).
#pragma once
#include <torch/csrc/jit/api/module.h>

namespace dslaunch::runtime::model::layers {

// For each cross entropy that ours has replaced and whose logits, possibly without their last positions and viewed as
// rows, come from a GEMM with a weight that nothing else reads: both become one operator. Calls of modules that end
// in that GEMM (a linear layer, transformers' models) are inlined into the caller, so that their own parameters are
// read there and belong to its unit. Returns the number of losses. Before units are intercepted.
int chunk_heads(const torch::jit::Module& model);

}  // namespace dslaunch::runtime::model::layers
