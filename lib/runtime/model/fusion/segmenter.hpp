// Extracts regions from a model's graphs: groups of operators that generated kernels may compute become one node,
// dslaunch::fused_region, which holds them as a subgraph.
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <string_view>
#include <unordered_map>

#include "runtime/model/fusion/services.hpp"

namespace dslaunch::runtime::model::fusion {

// Of all forwards of the model, of intercepted units as well. First inlines calls of methods and functions, except for
// those of units, whose forwards were replaced: a region never reaches beyond a call of a unit, so neither beyond what
// is gathered or recomputed at once. Returns the number of regions.
int fuse_regions(const torch::jit::Module& model,
                 const FusionServicesPtr& services = c10::make_intrusive<FusionServices>());

// The same in one block and its inner blocks, without inlining.
int fuse_regions(torch::jit::Block* block, const FusionServicesPtr& services);

// The operators of a block, inner ones included, that a region may contain and none does, with the reason; after
// fuse_regions().
std::unordered_map<const torch::jit::Node*, std::string_view> operators_left(torch::jit::Block* block);

}  // namespace dslaunch::runtime::model::fusion
