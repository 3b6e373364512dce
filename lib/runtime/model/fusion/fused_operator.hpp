// The operator dslaunch::fused_region, which runs an extracted subgraph: by a program for each description of its
// inputs that it has seen, and as it was written where that does not work.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <memory>

#include "runtime/model/fusion/services.hpp"

namespace dslaunch::runtime::model::fusion {

inline constexpr char kFusedRegion[] = "dslaunch::fused_region";

// Of one group. A program for other rows, as with another length of the samples, takes a few KiB and about a
// millisecond. Where the number of columns differs, or a number that the operators compute from sizes, kernels are
// compiled, for tenths of a second each.
inline constexpr size_t kMaxShapesOfGroup = 1024, kMaxCompiledOfGroup = 64;

// A node that is not yet in its place. It has an output for each of the subgraph's.
torch::jit::Node* create_fused_region(torch::jit::Graph& graph, at::ArrayRef<torch::jit::Value*> inputs,
                                      std::shared_ptr<torch::jit::Graph> subgraph, const FusionServicesPtr& services);

}  // namespace dslaunch::runtime::model::fusion
