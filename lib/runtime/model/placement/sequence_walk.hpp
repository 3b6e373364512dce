// Sequence parallelism in one graph whose parameters are split already: where a sum over the ranks would become whole,
// each rank gets the sum of its positions instead, and computes with them what works on each position alone, until an
// operator needs all of them. Nothing that the first walk has found changes: what cannot work on positions is what it
// was. Pure.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "runtime/model/placement/propagation.hpp"

namespace dslaunch::runtime::model::placement {

// Which values a unit takes and returns as positions: by argument, and by tensor of the result, the dim; empty: whole.
struct UnitPositions {
  using Dims = std::vector<std::optional<int64_t>>;
  Dims arguments, results;

  // Then the unit has one argument more, the length.
  bool takes_any() const;
};

// Of a call in the graph; null: all is whole.
using FindUnit = std::function<const UnitPositions*(const torch::jit::Node* call)>;

// `views`, `decisions`, `gathered`: with which propagate() has succeeded. Of `own` the arguments; the results follow
// from them.
Propagated propagate_positions(const PlacedGraph& graph, const ParameterViews& views, const Decisions& decisions,
                               const GatheredValues& gathered, int ranks, const UnitPositions& own,
                               const FindUnit& units);

// The dim of the positions in activations of this shape; empty: they have none, or fewer than there are ranks.
std::optional<int64_t> positions_dim(const Sizes& sizes, int ranks);

// Samples in the values that an analysis knows.
inline constexpr int64_t kAnalyzedBatch = 2;

}  // namespace dslaunch::runtime::model::placement
