// Where backward enters a call of a unit and where it leaves it, as hooks on autograd's nodes. Made on the thread that
// runs the model, run on autograd's.
//
// Backward enters through the nodes that made the call's outputs. It leaves by the call's gather node; a call whose
// gather node it does not come to (all its parameters are frozen, or what was made of them is detached) ends when the
// first node that made an input of it runs: autograd runs the nodes that one thread made from the last to the first, as
// far as gradients reach them, so the call's own are through then. (Models that call modules on several threads have no
// units.)
#pragma once
#include <ATen/core/ivalue.h>

#include <memory>
#include <unordered_set>
#include <vector>

#include "runtime/model/gather_node.hpp"

namespace torch::autograd {
struct Node;
}

namespace dslaunch::runtime {

// The nodes through which backward enters a call: those of its outputs, and of what it left in its arguments (changed
// in place, or added to a list, a dict or an object). To be made before the call runs; `arguments` must outlive it.
class EntryNodes {
 public:
  explicit EntryNodes(at::ArrayRef<c10::IValue> arguments);
  void hook(const std::vector<at::Tensor>& outputs, const std::shared_ptr<CallInBackward>& call) const;

 private:
  at::ArrayRef<c10::IValue> arguments_;
  std::unordered_set<std::shared_ptr<torch::autograd::Node>> before_;
};

// Ends the call, if it has been entered and not been left yet, at the first of the nodes that made `inputs`. Before the
// call makes a node.
void end_at_inputs(const std::vector<at::Tensor>& inputs, const std::shared_ptr<CallInBackward>& call);

}  // namespace dslaunch::runtime
