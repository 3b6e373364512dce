// The all-gather of a unit's parameters as an autograd node: its outputs are the parameters of one call, its backward
// receives all their gradients at once. Runs on the thread that runs the model; its backward on autograd's threads.
#pragma once
#include <ATen/core/ivalue.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/model/torchscript/units/weight_gemm.hpp"
#include "runtime/state/unit_parameters.hpp"

namespace torch::autograd {
struct Node;
}

namespace dslaunch::runtime::model::units {

// One call of a unit during backward.
struct CallInBackward {
  UnitParameters* parameters = nullptr;
  int unit = 0;
  bool is_prepared = false;                               // the unit's parameters are gathered
  bool is_taken = false;                                  // its gradients have been taken
  std::weak_ptr<torch::autograd::Node> gather_node = {};  // expired when no tensor depends on the parameters any more
  size_t num_parameters = 0;
  struct Deferred {
    size_t parameter = 0;
    std::function<at::Tensor()> gradient;  // undefined: it has been written where it is summed
  };
  std::vector<Deferred> deferred = {};                       // by backward so far
  std::vector<Deferred> postponed = {};                      // until run_postponed_gemms()
  std::vector<std::pair<size_t, at::Tensor>> computed = {};  // parts of gradients that were postponed, by parameter

  // Whether weight gradients of the call may be deferred, when backward comes to it.
  bool may_defer() const { return parameters->deferred_gradients() != nullptr; }
  // Leaves a part of the gradient of the call's i-th parameter for later, if this backward does that; else false.
  bool defer(size_t parameter, std::function<at::Tensor()> gradient);
  // Takes a part of the gradient of the call's i-th parameter: computes it where it is summed or, if this backward does
  // that, leaves it for later. False: neither is possible, and the caller returns it to autograd.
  bool take_gemm(size_t parameter, const WeightGemm& gemm, bool may_write);
  std::function<at::Tensor()> gradient_by(size_t parameter, const WeightGemm& gemm, bool may_write) const;
  void run_postponed();
  void prepare();
  // If gradients were deferred, these wait for them: the unit's owner gets all gradients of a call at once.
  void take(std::vector<at::Tensor> gradients);
  void end();  // backward has finished the call: unless the gather node delivers gradients, there are none
};

// Makes `views` outputs of one node that passes their gradients to the call.
void attach_gather_node(std::vector<at::Tensor>& views, const std::shared_ptr<CallInBackward>& call);

// Whether the tensor is an output of such a node.
bool is_gathered(const at::Tensor& tensor);

struct GatheredParameter {
  std::shared_ptr<CallInBackward> call;
  size_t index = 0;  // in the unit's parameters
};
// CallInBackward::take_gemm(), but the GEMM is left for run_postponed_gemms(), or for the end of the call.
bool postpone_gemm(const GatheredParameter& parameter, const WeightGemm& gemm, bool may_write);
// Those that the backward that this thread runs has postponed so far: beside a collective that has just been started.
void run_postponed_gemms();

// Empty if the tensor is not such an output itself: a view of one, another value.
std::optional<GatheredParameter> gathered_parameter(const at::Tensor& tensor);

// The defined tensors in a value: itself, or those in its tuples, lists and dicts. Does not descend into objects.
std::vector<at::Tensor> tensors_in(const c10::IValue& value);
std::vector<at::Tensor> tensors_in_all(at::ArrayRef<c10::IValue> values);

// The same including objects: the tensors that a call can leave behind in its arguments.
std::vector<at::Tensor> tensors_reached_from(at::ArrayRef<c10::IValue> values);

bool shares_storage(const std::vector<at::Tensor>& some, const std::vector<at::Tensor>& others);

}  // namespace dslaunch::runtime::model::units
