// How a stage comes by a value that an earlier part of the forward has computed. Pure.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <set>
#include <unordered_map>
#include <vector>

#include "runtime/model/graph/aliases.hpp"
#include "runtime/model/stages/flat_forward.hpp"

namespace dslaunch::runtime::model::stages {

enum class ValueKind : uint8_t {
  kReplicable,  // computed from the model's inputs, constants and unwritten buffers: computed again where it is read
  kHeld,        // a parameter, a buffer that forward writes, or a view of one: read on every stage that needs it
  kSize,        // computed from sizes of carried tensors: computed again from those numbers
  kCarried,     // computed once, and carried
};

// An int, a float or a boolean of the host.
bool is_number(const c10::TypePtr& type);

// A size of a tensor or a list; the same in the file and in the run.
bool reads_size(const torch::jit::Node* node);

class ValueKinds {
 public:
  ValueKinds(const FlatForward& flat, const graph::Aliases& memory);

  ValueKind of(const torch::jit::Value* value) const;
  // Of a node: the strongest of its outputs; kCarried for one that is to run once, where it stands.
  ValueKind of_node(size_t position) const { return nodes_[position]; }
  // Whether the node has to run even if no node reads its outputs: it changes memory, or may raise an error.
  bool has_effect(size_t position) const { return effects_[position]; }
  // A number that depends on the contents of tensors, not only on their shapes.
  bool depends_on_data(const torch::jit::Value* value) const;
  // A tuple, list or dict that is only put together here: put together again from its elements.
  bool is_structure(size_t position) const;
  // Whether the set holds memory that a single stage computes and writes to.
  bool is_carried_memory(int set) const { return carried_sets_.count(set) > 0; }
  // Everything from outside that the node at a position reads, also in its branches.
  const std::vector<torch::jit::Value*>& reads(size_t position) const { return reads_[position]; }
  // Why the forward cannot be cut between these positions (before node `cut`); null: it can.
  const char* obstacle_at(size_t cut) const;

 private:
  void collect_reads();
  void collect_regions();
  void collect_ranges();
  bool classify();
  ValueKind kind_of_node(size_t position) const;
  ValueKind kind_of_attribute(const torch::jit::Node* node) const;

  const FlatForward& flat_;
  const graph::Aliases& memory_;
  std::vector<ValueKind> nodes_;
  std::vector<bool> effects_;
  std::vector<std::vector<torch::jit::Value*>> reads_;
  std::vector<std::vector<int>> writes_;  // by position: sets
  std::vector<bool> in_region_;           // a `with` statement
  std::vector<const char*> obstacles_;    // by cut
  std::set<int> carried_sets_;
};

// Sizes of carried tensors that follow from the model's inputs: `inputs_embeds.shape` is that of the ids it was looked
// up with. Such sizes are computed from stand-ins, tensors without storage that have the shape of the value, so that
// stages compute them for themselves.

// Lets nodes that read a size read that of a stand-in, where one can be computed from values that every stage has.
// `kinds`: of `flat`, out of date if it returns true: nodes were added.
bool infer_sizes(FlatForward& flat, const ValueKinds& kinds);

}  // namespace dslaunch::runtime::model::stages
