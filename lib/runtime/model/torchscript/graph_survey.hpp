// Reads what the graph passes made of a model.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include "runtime/model/interface/graph_pass_options.hpp"
#include "runtime/model/interface/graph_report.hpp"

namespace dslaunch::runtime::model::torchscript {

// The reason of operators in GraphReport::left that compute, as embeddings do, and that no region may contain.
inline constexpr char kNoKindOfRegions[] = "of a kind that no region contains";

// Follows the calls of forward, into units that are intercepted as well; of a branch both sides, of a loop one pass.
GraphReport report_graphs(const torch::jit::Module& model, const GraphPassOptions& options, at::Device device);

}  // namespace dslaunch::runtime::model::torchscript
