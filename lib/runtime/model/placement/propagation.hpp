// One walk over a flat graph: from the placements of its parameters to those of all its values. Pure.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <unordered_map>
#include <unordered_set>

#include "runtime/model/graph/flat_graph.hpp"
#include "runtime/model/placement/operation.hpp"

namespace dslaunch::runtime::model::placement {

// A graph to walk over.
struct PlacedGraph {
  const graph::FlatGraph& flat;
  const KnownValues& known;
  const std::unordered_set<const torch::jit::Value*>& written;     // in place, by some node
  const std::unordered_map<const torch::jit::Value*, int>& reads;  // of parameters that may be split: their numbers
};

using Decisions = std::unordered_map<int, Placement>;  // by parameter; others are whole
using GatheredValues = std::unordered_set<const torch::jit::Value*>;

// The dim of a value that is as long as sequences are; null: the length that a unit is given as its last argument.
struct LengthSource {
  const torch::jit::Value* value = nullptr;
  int64_t dim = 0;
};

struct Propagated {
  // Of the nodes that have a sharded or partial operand, or read one of the two.
  std::unordered_map<const torch::jit::Node*, Outcome> outcomes;
  std::unordered_map<const torch::jit::Value*, Placements> placements;
  std::unordered_map<const torch::jit::Value*, Placement> gathered;  // as they are made; whole for all that reads them
  std::vector<LengthSource> lengths = {};  // by number; empty: no value is split along positions
};

GatheredValues gathered_values(const Propagated& propagated);

// The parameters, in another order of dims, that values of the graph are.
ParameterViews parameter_views(const PlacedGraph& graph);

// `views`: of the parameters that the walk may demand to be split. `gathered`: where they are sharded. Throws Coarsen,
// Divide, Shard or Refuse.
Propagated propagate(const PlacedGraph& graph, const ParameterViews& views, const Decisions& decisions,
                     const GatheredValues& gathered, int ranks);

}  // namespace dslaunch::runtime::model::placement
