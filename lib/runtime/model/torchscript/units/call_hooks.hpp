// Autograd hooks at the points where backward enters and leaves a call of a unit. Created on the thread that runs the
// model, run on autograd's threads.
//
// Backward enters through the nodes that produced the call's outputs, and leaves through the call's gather node. If
// backward does not reach the gather node (all parameters are frozen, or the values computed from them are detached),
// the call ends when the first node that produced one of its inputs runs: autograd runs the nodes created by one thread
// from last to first, as far as gradients reach them, so the call's own nodes have run by then. (Models that call
// modules on several threads have no units.)
#pragma once
#include <ATen/core/ivalue.h>

#include <memory>
#include <unordered_set>
#include <vector>

#include "runtime/model/torchscript/units/gather_node.hpp"

namespace torch::autograd {
struct Node;
}

namespace dslaunch::runtime::model::units {

// The nodes through which backward enters a call: the nodes of its outputs, and of results that the call left in its
// arguments (changed in place, or added to a list, a dict or an object). Construct before the call runs; `arguments`
// must outlive this object.
class EntryNodes {
 public:
  explicit EntryNodes(at::ArrayRef<c10::IValue> arguments);
  void hook(const std::vector<at::Tensor>& outputs, const std::shared_ptr<CallInBackward>& call) const;

 private:
  at::ArrayRef<c10::IValue> arguments_;
  std::unordered_set<std::shared_ptr<torch::autograd::Node>> before_;
};

// Ends the call, if backward has entered but not left it, at the first of the nodes that produced `inputs`. Call before
// the call creates any node.
void end_at_inputs(const std::vector<at::Tensor>& inputs, const std::shared_ptr<CallInBackward>& call);

}  // namespace dslaunch::runtime::model::units
