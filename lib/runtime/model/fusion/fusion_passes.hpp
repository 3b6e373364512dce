// The passes beside the segmenter: what changes graphs before and after groups of operators became fused regions.
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <vector>

namespace dslaunch::runtime::model::fusion {

// The gradient of a bias is the sum of the rows of its GEMM's gradient. Where a region computes that gradient, behind
// an activation or a residual's norm, the kernel sums the rows as well, and they are not read again.
//
// Before regions are found: the bias of each GEMM (linear, addmm) that activations or norms read goes into the
// GEMM without its history, and dslaunch::with_bias behind it has the gradient. In the block and its inner blocks.
void separate_bias_gradients(torch::jit::Block* block);

// After regions are found: undoes it where no region took the operator.
void restore_bias_gradients(torch::jit::Block* block);

// Before regions are found: chunk and split along the last dim become slices where only operators of regions read the
// pieces (gate and up of SwiGLU from one GEMM). A region that contains them writes the gradient of the whole tensor,
// which autograd would join from those of the pieces. In the block and its inner blocks.
void slice_pieces(torch::jit::Block* block);

// A residual stream feeds a layer norm and, later, an addition: autograd adds the two gradients in a kernel of its own.
// Where operators that make new tensors read the input of a dslaunch::layer_norm after it, they read it from
// dslaunch::layer_norm_and_input instead, whose backward gets both gradients. Regions (RMSNorm, other norms) pass
// their inputs through in the same way. Inputs that are written to in place stay as they are, and so do readers that
// may pass their argument through: calls, lists, views, the results of the graph.
//
// In all forwards, whose calls it inlines; after regions were extracted, which contain norms with the additions before
// them. Returns the number of layer norms and regions.
int add_residual_gradients(const torch::jit::Module& model);

// activation_checkpointing.selective: which outputs of fused regions their readers need not keep for backward, because
// the region can compute them again.
//
// Marks the outputs that only GEMMs with weights read, as their first factor, in all forwards of the model. A region
// and such a GEMM are of one call of a unit, so that the region's parameters are in their places in both backwards.
// After all passes that change who reads them. Returns their number.
int offer_outputs(const torch::jit::Module& model);

// By output of a region's node.
std::vector<bool> offered_outputs(const torch::jit::Node* region);

}  // namespace dslaunch::runtime::model::fusion
