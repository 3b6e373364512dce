// Passes over a model's graphs that put operators of fused_operators.hpp in the place of PyTorch's. Elsewhere than on a
// GPU these compute what was there before, bit by bit.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include "runtime/model/graph_pass_options.hpp"

namespace dslaunch::runtime {

// Comes before units are intercepted: their graphs are copied then.
void run_graph_passes(const torch::jit::Module& model, const GraphPassOptions& options);

}  // namespace dslaunch::runtime
