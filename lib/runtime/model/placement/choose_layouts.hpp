// Which parameters of one graph are split, and how. Every GEMM with a parameter tries to split its output features;
// what its consumers demand refines the parts, and the walk is repeated until all stands. Where an operator does not
// work on parts, they are gathered in front of it, or the GEMMs that they come from stay whole. Pure.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/model/placement/propagation.hpp"

namespace dslaunch::runtime::model::placement {

enum class GemmSplit : uint8_t { kWhole, kColumn, kRow };

// A GEMM with a parameter.
struct PlannedGemm {
  int parameter = 0;
  int64_t elements = 0;
  GemmSplit split = GemmSplit::kWhole;
  std::string reason = {};  // why it stays whole, as a clause
};

// What is decided about a GEMM beforehand.
struct GivenSplit {
  GemmSplit split = GemmSplit::kWhole;
  std::vector<int64_t> parts = {};  // of the split dim, in proportion; each is split by itself
  std::string reason = {};          // kWhole: as in PlannedGemm
};

struct ChosenLayouts {
  Decisions decisions;
  Propagated propagated;
  ParameterViews views = {};          // without those of parameters that stay whole
  std::vector<PlannedGemm> gemms;     // each parameter once, in the order of use
  std::vector<std::string> gathered;  // why the ranks gather a value, as clauses: each once
};

// `given`: by parameter. Those of which some are whole are cut where an operator needs a part.
ChosenLayouts choose_layouts(const PlacedGraph& graph, int ranks, const std::map<int, GivenSplit>& given);

}  // namespace dslaunch::runtime::model::placement
