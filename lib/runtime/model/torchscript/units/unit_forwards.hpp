// The forward of a unit's class as it was before its interception (torchscript/unit_interception.hpp). Interception
// replaces the class's graph by one node, dslaunch::run_unit, and the node itself holds the original: no table outside
// the model is needed to find it, so several models may load and run at once. A class belongs to one loaded model.
#pragma once
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/custom_class.h>

namespace dslaunch::runtime::model::units {

struct UnitForward : torch::CustomClassHolder {
  explicit UnitForward(const c10::ClassType& type);
  torch::jit::GraphFunction original;
};

// Replaces the graph of the class's forward by a node that holds `forward`.
void replace_forward(const c10::ClassType& type, c10::intrusive_ptr<UnitForward> forward);

// Of a dslaunch::run_unit node.
c10::intrusive_ptr<UnitForward> unit_forward(const torch::jit::Node& node);
// Of a class; null: it was never intercepted.
c10::intrusive_ptr<UnitForward> unit_forward(const c10::ClassType& type);

}  // namespace dslaunch::runtime::model::units
