// The gather of a unit's parameters as an autograd node: its outputs are the parameters of one call, its backward
// receives all their gradients at once. On the thread that runs the model; its backward on autograd's.
#pragma once
#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "runtime/state/unit_parameters.hpp"

namespace torch::autograd {
struct Node;
}

namespace dslaunch::runtime {

// One call of a unit on its way through backward.
struct CallInBackward {
  UnitParameters* parameters = nullptr;
  int unit = 0;
  bool is_prepared = false;                               // the unit's parameters are in place
  bool is_taken = false;                                  // its gradients have been handed over
  std::weak_ptr<torch::autograd::Node> gather_node = {};  // gone when no tensor depends on the parameters any more
  size_t num_parameters = 0;

  void prepare();
  void take(std::vector<at::Tensor> gradients);
  void end();  // backward is through with the call: where its gather node brings no gradients, there are none
};

// Makes `views` outputs of one node that hands their gradients to the call.
void attach_gather_node(std::vector<at::Tensor>& views, const std::shared_ptr<CallInBackward>& call);

// Is it such an output?
bool is_gathered(const at::Tensor& tensor);

// The defined tensors in a value: itself, or those in its tuples, lists and dicts. Objects are not entered.
std::vector<at::Tensor> tensors_in(const c10::IValue& value);
std::vector<at::Tensor> tensors_in_all(at::ArrayRef<c10::IValue> values);

// The same, objects entered: what a call can leave behind in its arguments.
std::vector<at::Tensor> tensors_reached_from(at::ArrayRef<c10::IValue> values);

bool shares_storage(const std::vector<at::Tensor>& some, const std::vector<at::Tensor>& others);

}  // namespace dslaunch::runtime
