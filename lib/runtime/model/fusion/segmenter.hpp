// Extracts regions from a model's graphs: groups of operators that generated kernels may compute become one node,
// dslaunch::fused_region, which holds them as a subgraph.
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

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

// Groups of items that can each run as one: convex, so that no item outside depends on a group and a group on it. Pure.
struct PartitionItem {
  std::vector<size_t> inputs;        // earlier items
  std::optional<int64_t> kind = {};  // items of one kind may share a group; without a kind an item stays alone
};

// The group of each item, numbered by their first members; greedy in the order of the items, each group grows along its
// edges as far as it stays convex.
std::vector<size_t> partition(const std::vector<PartitionItem>& items);

}  // namespace dslaunch::runtime::model::fusion
