// Sequence parallelism of a model: which values of its graphs are split along positions, and which of them its units
// take and return so. What runs from unit to unit stays split, and what a unit only reads as a whole is passed whole.
// Pure.
#pragma once
#include <functional>
#include <vector>

#include "runtime/model/placement/choose_layouts.hpp"
#include "runtime/model/placement/sequence_walk.hpp"

namespace dslaunch::runtime::model::placement {

struct SequenceGraph {
  PlacedGraph graph;
  const ChosenLayouts& chosen;
};

struct SequencePlan {
  Propagated propagated;
  UnitPositions positions = {};  // of the graph itself; the root's are none
};

// By graph. The first is the root's; `unit_of`: the graph of a unit that it calls; empty: it is not among them.
std::vector<SequencePlan> plan_sequences(const std::vector<SequenceGraph>& graphs, int ranks,
                                         const std::function<std::optional<size_t>(const torch::jit::Node*)>& unit_of);

}  // namespace dslaunch::runtime::model::placement
