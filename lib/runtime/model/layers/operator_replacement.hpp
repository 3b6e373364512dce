// Replaces PyTorch's operators in a graph by those of fused_operators.hpp. On other devices than GPUs the replacements
// compute the same results as before, bit by bit.
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

namespace dslaunch::runtime::model::layers {

inline constexpr char kCrossEntropyOperator[] = "dslaunch::cross_entropy";
inline constexpr char kLinearOperator[] = "dslaunch::linear";
inline constexpr char kAddmmOperator[] = "dslaunch::addmm";
inline constexpr char kMatmulOperator[] = "dslaunch::matmul";
inline constexpr char kChunkedOperator[] = "dslaunch::chunked_cross_entropy";
// The arguments of the two, then those of a Cut: see linear_cut.hpp.
inline constexpr char kLinearCutOperator[] = "dslaunch::linear_cut";
inline constexpr char kAddmmCutOperator[] = "dslaunch::addmm_cut";
inline constexpr char kLayerNormOperator[] = "dslaunch::layer_norm";
// The same arguments; a second result, which is the input: see residual_gradients.hpp.
inline constexpr char kLayerNormAndInputOperator[] = "dslaunch::layer_norm_and_input";

// Whether an operator computed the value, so that it is not a parameter, transposed or not.
bool is_computed(const torch::jit::Value* value);

// F.cross_entropy is a TorchScript function: inlining brings the cast before its call next to the operator in it.
void inline_cross_entropy(const torch::jit::Module& model);

// For nodes of aten::cross_entropy_loss and of aten::layer_norm. They destroy the node.
void fuse_cross_entropy(torch::jit::Node* node);
void fuse_layer_norm(torch::jit::Node* node);

// GemmOptions::sums_bias. For a node of aten::linear or aten::addmm, which it destroys.
void sum_bias_gradient(torch::jit::Node* node);

// Every linear, matmul and addmm whose weight may be a parameter by one that can defer its gradient and, with `writes`,
// has GemmOptions::writes_gradient. Before units are intercepted.
void take_weight_gradients(const torch::jit::Module& model, bool writes);

}  // namespace dslaunch::runtime::model::layers
