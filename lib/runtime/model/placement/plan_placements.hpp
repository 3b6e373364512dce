// Which parameters of a model the ranks of a tensor group split, and how the values of its graphs lie then: of forward
// with the calls of units left in it, and of each class of units. On the thread that loads the model; changes no graph
// of the model.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/model/graph/flat_graph.hpp"
#include "runtime/model/graph/unit_discovery.hpp"
#include "runtime/model/interface/placement_report.hpp"
#include "runtime/model/placement/choose_layouts.hpp"
#include "runtime/model/placement/sequence_walk.hpp"
#include "runtime/model/placement/tensor_parallel_options.hpp"
#include "runtime/state/model_metadata.hpp"
#include "runtime/state/parameter_location.hpp"
#include "runtime/state/parameter_table.hpp"

namespace dslaunch::runtime::model::placement {

struct ModelToPlace {
  const torch::jit::Module& module;
  const std::vector<graph::UnitCandidate>& units;
  const ParameterTable& table;
  const std::vector<std::vector<ParameterLocation>>& locations;  // by parameter
  const std::vector<RecordedInput>& inputs;                      // of forward
};

// The forward of one module, or of all modules of its class.
struct GraphPlan {
  graph::FlatGraph flat;                      // a copy, which apply_placements() edits
  std::vector<torch::jit::Module> instances;  // the first is that of `flat`
  std::vector<std::vector<int>> parameters;   // by instance and number in `chosen`: in the table
  KnownValues known;
  ChosenLayouts chosen;
  UnitPositions positions = {};  // of a unit: what it takes and returns
  // By call of a unit that takes any, in the order of the nodes.
  std::unordered_map<const torch::jit::Node*, UnitPositions> calls = {};
};

struct ModelPlan {
  std::vector<GraphPlan> graphs;        // those that have something split
  std::map<int, Placement> parameters;  // by parameter of the table; others are whole
  PlacementReport report;
};

// Without single layers that share their weight with the root (a head with a table): only in one graph with all uses of
// it, and with the loss, can the weight be split well.
std::vector<graph::UnitCandidate> units_of_split_model(const torch::jit::Module& module,
                                                       std::vector<graph::UnitCandidate> units);

ModelPlan plan_placements(const ModelToPlace& model, const TensorParallelOptions& options);

}  // namespace dslaunch::runtime::model::placement
