// A model's forward as one list of nodes: all calls are inlined except those of units. On the thread that loads the
// model; changes no graph of the model.
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/model/analysis/inlined_graph.hpp"
#include "runtime/model/graph/unit_discovery.hpp"
#include "runtime/state/parameter_location.hpp"

namespace dslaunch::runtime::model::stages {

// A call of a unit, or the inlined call of a smaller module that has parameters of its own and no unit inside.
struct FlatLayer {
  std::string path, class_name;
  bool is_block = false;
  c10::intrusive_ptr<c10::ivalue::Object> module;  // null: a branch or loop around layers
  size_t begin = 0, end = 0;                       // its nodes
};

struct FlatForward {
  torch::jit::Module module;
  std::shared_ptr<torch::jit::Graph> graph;  // a copy
  std::vector<torch::jit::Node*> nodes;      // of the graph's own block; a branch or loop is one node
  std::unordered_map<const torch::jit::Node*, size_t> position;  // of these
  std::vector<FlatLayer> layers;                                 // in order
  analysis::ObjectOfValue objects;                               // also inside branches
  // The calls that are left, also inside branches.
  std::unordered_map<const torch::jit::Node*, c10::intrusive_ptr<c10::ivalue::Object>> unit_calls;
  std::unordered_map<const torch::jit::Node*, size_t> layer_of;
};

// Brings `nodes`, `position` and the extent of the layers up to date after nodes were added.
void index_nodes(FlatForward& flat);

// Throws UserError(65) for a model whose code cannot be followed: what stops it, and the alternatives.
FlatForward flatten_forward(const torch::jit::Module& module, const std::vector<graph::UnitCandidate>& units);

// The forward of a unit with all calls inlined; `objects`: its known modules.
struct FlatBody {
  std::shared_ptr<torch::jit::Graph> graph;  // a copy
  analysis::ObjectOfValue objects;
};
FlatBody flatten_body(const c10::intrusive_ptr<c10::ivalue::Object>& unit);

// Inlines all calls of a graph, those of units as well.
void inline_all(torch::jit::Graph& graph, analysis::ObjectOfValue& objects);

}  // namespace dslaunch::runtime::model::stages
