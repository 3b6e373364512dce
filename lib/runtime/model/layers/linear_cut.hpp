// GEMMs whose output is cut into pieces.
#pragma once
#include <torch/csrc/jit/api/module.h>

namespace dslaunch::runtime::model::layers {

// A linear layer for queries, keys and values at once: its output is split or chunked, maybe after a view, and nothing
// else reads it. GEMM and cut become one operator, whose backward gets the gradients of the pieces and puts them
// together while it sums the bias's; autograd would write them and read them again.
//
// In all forwards, whose calls it inlines; of GEMMs that operator_replacement.hpp has replaced. Returns the number
// of GEMMs.
int fuse_linear_cuts(const torch::jit::Module& model);

}  // namespace dslaunch::runtime::model::layers
