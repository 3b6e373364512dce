#include "runtime/model/torchscript/units/call_hooks.hpp"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

namespace dslaunch::runtime::model::units {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

class CallHook : public torch::autograd::FunctionPreHook {
 public:
  using Step = void (CallInBackward::*)();
  CallHook(std::shared_ptr<CallInBackward> call, Step step) : call_(std::move(call)), step_(step) {}
  variable_list operator()(const variable_list& gradients) override {
    (call_.get()->*step_)();
    return gradients;
  }

 private:
  std::shared_ptr<CallInBackward> call_;
  Step step_;
};

// The node that produced a tensor, and the node of the tensor it is a view of: if a view is changed in place later, its
// own node is replaced, and backward arrives through the node of its base.
std::vector<std::shared_ptr<Node>> nodes_of(const at::Tensor& tensor) {
  std::vector<std::shared_ptr<Node>> out;
  if (tensor.grad_fn()) out.push_back(tensor.grad_fn());
  if (!tensor.is_view()) return out;
  const at::Tensor base(tensor._base());
  if (base.grad_fn() && !is_gathered(base)) out.push_back(base.grad_fn());
  return out;
}

}  // namespace

EntryNodes::EntryNodes(at::ArrayRef<c10::IValue> arguments) : arguments_(arguments) {
  for (const auto& tensor : tensors_reached_from(arguments)) {
    for (const auto& node : nodes_of(tensor)) before_.insert(node);
  }
}

void EntryNodes::hook(const std::vector<at::Tensor>& outputs, const std::shared_ptr<CallInBackward>& call) const {
  auto known = before_;
  auto left = tensors_reached_from(arguments_);
  left.insert(left.end(), outputs.begin(), outputs.end());
  for (const auto& tensor : left) {
    for (const auto& node : nodes_of(tensor)) {
      if (!known.insert(node).second) continue;
      node->add_pre_hook(std::make_unique<CallHook>(call, &CallInBackward::prepare));
    }
  }
}

void end_at_inputs(const std::vector<at::Tensor>& inputs, const std::shared_ptr<CallInBackward>& call) {
  std::unordered_set<Node*> hooked;
  for (const auto& input : inputs) {
    for (const auto& node : nodes_of(input)) {
      if (!hooked.insert(node.get()).second) continue;
      // Tensor pre-hooks run before node pre-hooks: the same node may also be where backward enters the preceding call,
      // whose parameters may need the memory of this call's parameters.
      node->add_tensor_pre_hook(std::make_unique<CallHook>(call, &CallInBackward::end));
    }
  }
}

}  // namespace dslaunch::runtime::model::units
