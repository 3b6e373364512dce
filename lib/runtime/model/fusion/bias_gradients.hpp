// The gradient of a bias is the sum of the rows of its GEMM's gradient. Where a region computes that one, behind an
// activation or a residual's norm, the kernel sums the rows as well, and nobody reads them again.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

namespace dslaunch::runtime::model::fusion {

// Before regions are found: the bias of each GEMM (linear, addmm) that activations or norms read goes into the
// GEMM without its history, and dslaunch::with_bias behind it has the gradient. In the block and its inner blocks.
void separate_bias_gradients(torch::jit::Block* block);

// After regions are found: undoes it where no region took the operator.
void restore_bias_gradients(torch::jit::Block* block);

}  // namespace dslaunch::runtime::model::fusion
