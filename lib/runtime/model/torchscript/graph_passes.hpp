// All passes over the graphs of models and losses, in the order in which they run, and what they made of a model.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <vector>

#include "runtime/model/interface/graph_pass_options.hpp"
#include "runtime/model/interface/graph_report.hpp"
#include "runtime/model/passes/graph_pass.hpp"

namespace dslaunch::runtime::model::torchscript {

const std::vector<passes::GraphPass>& graph_passes();

// The passes on a loss from a file.
void run_loss_passes(const torch::jit::Module& loss, const config::Kernels& kernels, at::Device device);

// The reason of operators in GraphReport::left that compute, as embeddings do, and that no region may contain.
inline constexpr char kNoKindOfRegions[] = "of a kind that no region contains";

// Follows the calls of forward, into units that are intercepted as well; of a branch both sides, of a loop one pass.
GraphReport report_graphs(const torch::jit::Module& model, const GraphPassOptions& options, at::Device device);

}  // namespace dslaunch::runtime::model::torchscript
