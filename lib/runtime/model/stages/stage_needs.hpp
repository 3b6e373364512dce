// What a part of a flattened forward needs from the parts before it, and which nodes it has to compute again. Pure.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/result.hpp"
#include "runtime/model/graph/aliases.hpp"
#include "runtime/model/stages/flat_forward.hpp"
#include "runtime/model/stages/value_kinds.hpp"
#include "runtime/state/parameter_location.hpp"

namespace dslaunch::runtime::model::stages {

// The part from node `begin` up to, but without, node `end`; `live_out`: what the parts after it need from it.
struct StageRange {
  size_t begin = 0, end = 0;
  std::vector<torch::jit::Value*> live_out;
};

struct StageNeeds {
  std::vector<size_t> nodes;                   // to run, ascending; those before `begin` are computed again
  std::vector<torch::jit::Value*> carried_in;  // tensors and tuples of them, numbers; in the order of their definition
  std::set<torch::jit::Value*> copied;         // of carried_in: tensors that the part may change in place
  std::set<size_t> inputs;                     // arguments of forward that it reads, without self
};

class StageSplitter {
 public:
  StageSplitter(const FlatForward& flat, const graph::Aliases& memory, const ValueKinds& kinds);

  // An error: why nothing can be cut at `range.begin`, as a clause ("it would carry a List[Tensor] (...)").
  Result<StageNeeds> needs_of(const StageRange& range) const;
  // "output of 'blocks.3'"
  std::string describe(const torch::jit::Value* value) const;

 private:
  const FlatForward& flat_;
  const graph::Aliases& memory_;
  const ValueKinds& kinds_;
  // Nodes that change memory which every stage computes for itself, by set.
  std::map<int, std::vector<size_t>> replicable_writers_;
};

// Which stages read which tensors of the modules. Pure.

// The attributes that a list of nodes reads: those of the units that they call, whole, and others one by one. An
// attribute of which only a size is read does not count.
class SlotsRead {
 public:
  SlotsRead(const FlatForward& flat, const std::vector<size_t>& nodes);
  bool contains(const std::vector<ParameterLocation>& locations) const;

 private:
  void note(const FlatForward& flat, const torch::jit::Node* node);

  bool reads(const FlatForward& flat, const torch::jit::Value* value) const;

  const std::unordered_set<size_t> nodes_;
  std::unordered_set<ObjectKey> objects_;
  std::set<SlotKey> slots_;
};

// For tensors in the order of the module tree, each with its slots: the stages that hold it, ascending. A tensor that
// no stage reads is held by the stage of the layer that it lies in, else by that of the tensor before it.
std::vector<std::vector<int>> find_holders(const FlatForward& flat, const std::vector<SlotsRead>& by_stage,
                                           const std::vector<size_t>& stage_begins,
                                           const std::vector<std::vector<ParameterLocation>>& tensors);

}  // namespace dslaunch::runtime::model::stages
