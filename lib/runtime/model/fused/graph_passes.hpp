// Passes over a model's graphs that replace PyTorch's operators by those of fused_operators.hpp. On other devices than
// GPUs the replacements compute the same results as before, bit by bit.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include "runtime/model/graph_pass_options.hpp"

namespace dslaunch::runtime {

// Call before units are intercepted: interception copies their graphs.
void run_graph_passes(const torch::jit::Module& model, const GraphPassOptions& options);

}  // namespace dslaunch::runtime
