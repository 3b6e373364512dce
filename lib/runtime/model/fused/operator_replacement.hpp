// Replaces PyTorch's operators in a graph by those of fused_operators.hpp. On other devices than GPUs the replacements
// compute the same results as before, bit by bit.
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

namespace dslaunch::runtime::model::fused {

// F.cross_entropy is a TorchScript function: inlining brings the cast before its call next to the operator in it.
void inline_cross_entropy(const torch::jit::Module& model);

// For nodes of aten::cross_entropy_loss, aten::layer_norm and aten::linear. They destroy the node.
void fuse_cross_entropy(torch::jit::Node* node);
void fuse_layer_norm(torch::jit::Node* node);
void fuse_linear(torch::jit::Node* node);

// Every linear, matmul and addmm by one that can defer its weight gradient: of a pipeline stage whose schedule splits
// backwards, after the cut and before units are intercepted.
void replace_deferring(const torch::jit::Module& model);

}  // namespace dslaunch::runtime::model::fused
