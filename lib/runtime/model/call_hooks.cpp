#include "runtime/model/call_hooks.hpp"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

namespace dslaunch::runtime {
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

}  // namespace

EntryNodes::EntryNodes(at::ArrayRef<c10::IValue> arguments) {
  for (const auto& argument : arguments) {
    for (auto& tensor : tensors_in(argument)) before_.emplace_back(tensor, tensor.grad_fn());
  }
}

void EntryNodes::hook(const std::vector<at::Tensor>& outputs, const std::shared_ptr<CallInBackward>& call) {
  for (const auto& output : outputs) add(output.grad_fn(), call);
  for (const auto& [tensor, node] : before_) {
    if (tensor.grad_fn() != node) add(tensor.grad_fn(), call);
  }
}

void EntryNodes::add(const std::shared_ptr<Node>& node, const std::shared_ptr<CallInBackward>& call) {
  if (!node || !hooked_.insert(node.get()).second) return;
  node->add_pre_hook(std::make_unique<CallHook>(call, &CallInBackward::prepare));
}

void end_at_inputs(const std::vector<at::Tensor>& inputs, const std::shared_ptr<CallInBackward>& call) {
  std::unordered_set<Node*> hooked;
  for (const auto& input : inputs) {
    const auto& node = input.grad_fn();
    if (!node || !hooked.insert(node.get()).second) continue;
    // Tensors' hooks come first: the node may also be where backward enters the call before this one, and that call's
    // parameters may need the place of this one's.
    node->add_tensor_pre_hook(std::make_unique<CallHook>(call, &CallInBackward::end));
  }
}

}  // namespace dslaunch::runtime
