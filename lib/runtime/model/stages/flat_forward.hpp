// A model's forward as one list of nodes, and the layers among them at which it can be cut. On the thread that loads
// the model; changes no graph of the model.
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/model/graph/flat_graph.hpp"
#include "runtime/model/graph/unit_discovery.hpp"

namespace dslaunch::runtime::model::stages {

// A call of a unit, or the inlined call of a smaller module that has parameters of its own and no unit inside.
struct FlatLayer {
  std::string path, class_name;
  bool is_block = false;
  graph::Object module;       // null: a branch or loop around layers
  size_t begin = 0, end = 0;  // its nodes
};

struct FlatForward : graph::FlatGraph {
  std::vector<torch::jit::Node*> nodes;  // of the graph's own block; a branch or loop is one node
  std::unordered_map<const torch::jit::Node*, size_t> position;  // of these
  std::vector<FlatLayer> layers;                                 // in order
  std::unordered_map<const torch::jit::Node*, size_t> layer_of;
};

// Brings `nodes`, `position` and the extent of the layers up to date after nodes were added.
void index_nodes(FlatForward& flat);

// Throws UserError(65) for a model whose code cannot be followed: what stops it, and the alternatives.
// `flat`: of flatten_forward() with these units.
FlatForward find_layers(graph::FlatGraph flat, const std::vector<graph::UnitCandidate>& units);
// `obstacle`: as FlatGraph has it; empty: nothing.
void require_followed(const std::string& obstacle);

}  // namespace dslaunch::runtime::model::stages
