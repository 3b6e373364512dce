// Which stages read which tensors of the modules. Pure.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <set>
#include <unordered_set>
#include <vector>

#include "runtime/model/stages/flat_forward.hpp"
#include "runtime/state/parameter_location.hpp"

namespace dslaunch::runtime::model::stages {

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
