// A copy of a module's forward with its calls inlined, and the modules that its nodes and values belong to; and the
// graphs that run, with their calls inlined in place. On the thread that loads the model.
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/model/graph/unit_discovery.hpp"

namespace dslaunch::runtime::model::graph {

using Object = c10::intrusive_ptr<c10::ivalue::Object>;
// The values of a graph that are known modules (or other objects).
using ObjectOfValue = std::unordered_map<const torch::jit::Value*, Object>;

// If `node` reads an attribute of a known object and that attribute is an object, records its output as known.
void bind_attribute(const torch::jit::Node* node, ObjectOfValue& objects);

// A call that was inlined, or one of a unit, which stays.
struct FlatCall {
  std::optional<size_t> caller;       // the call that makes it; empty: forward itself does
  Object object;                      // null: a function, or a method of an object that is not known
  const torch::jit::Node* around;     // the branch or loop in which it lies; null: in the graph's own block
  const torch::jit::Node* unit_call;  // the node of one that stays, else null
};

struct FlatGraph {
  torch::jit::Module module;
  std::shared_ptr<torch::jit::Graph> graph;
  ObjectOfValue objects;  // also inside branches
  // The calls of units that are left, also inside branches.
  std::unordered_map<const torch::jit::Node*, Object> unit_calls;
  std::vector<FlatCall> calls;                                  // in the order in which they run
  std::unordered_map<const torch::jit::Node*, size_t> call_of;  // the innermost call of a node; forward's own have none
  // The first thing that could not be followed, as a clause ("it runs ..."); empty: there is none. Such calls stay.
  std::string obstacle;
};

// Calls of the forwards of `units` stay. Of units that were intercepted, the forwards as they were.
FlatGraph flatten_forward(const torch::jit::Module& module, const std::vector<UnitCandidate>& units = {});

// For analyses of what runs: without units and calls, and without branches that depend on arguments which this model
// leaves at their constants (an embedding without max_norm does not write to its table).
FlatGraph flatten_resolved(const torch::jit::Module& module);

// Inlines all calls of a graph, those of units as well. `objects`: known ones; gets those that it meets.
void inline_calls(torch::jit::Graph& graph, ObjectOfValue& objects);

// The forwards that run: the model's, and the original ones of intercepted units. Inlines their calls in place, except
// for those of units, and takes tuples apart. Nothing changes where it was done before.
std::vector<std::shared_ptr<torch::jit::Graph>> inline_running_forwards(const torch::jit::Module& model);

// Whether the attribute is a parameter. Only modules have any: of an object of another class LibTorch does not answer.
inline bool is_parameter(const c10::ClassType& type, size_t slot) {
  return type.is_module() && type.is_parameter(slot);
}

}  // namespace dslaunch::runtime::model::graph
