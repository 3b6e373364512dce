#include "runtime/model/recomputation/recompute_backward.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>

#include "base/error.hpp"
#include "runtime/model/units/gather_node.hpp"
#include "runtime/model/units/unit_parameters_scope.hpp"

namespace dslaunch::runtime::model::recomputation {
namespace {

using torch::autograd::variable_list;

constexpr const char* kDiffers =
    "its recomputation returned other outputs than its first forward; something outside the unit changed its behaviour";

std::vector<at::Tensor> leaves_of(const SavedCall& call) {
  for (const auto& [version, saved_version] : call.overlapping) {
    if (version.current_version() != saved_version) {
      refuse(call, "two of its outputs share memory, and one of the two was changed in place");
    }
  }
  std::vector<at::Tensor> out;
  for (const auto& input : call.inputs) {
    if (!input.stored->is_intact()) {
      refuse(call, "one of its arguments was changed in place before backward");
    }
    out.push_back(input.stored->get().detach().set_requires_grad(input.requires_grad));
  }
  return out;
}

std::vector<at::Tensor> outputs_of_node(const SavedCall& call, const std::vector<at::Tensor>& result,
                                        const std::vector<at::Tensor>& given) {
  std::vector<at::Tensor> out(call.output_sizes.size());
  const auto put = [&](int64_t output, const at::Tensor& tensor) {
    if (output == kNoOutput) return;
    if (tensor.sizes() != call.output_sizes[output]) refuse(call, kDiffers);
    out[output] = tensor;
  };
  if (result.size() != call.outputs.size()) refuse(call, kDiffers);
  for (size_t i = 0; i < result.size(); ++i) put(call.outputs[i], result[i]);
  for (size_t i = 0; i < given.size(); ++i) put(call.changed_outputs[i], given[i]);
  return out;
}

// Recomputes the outputs of the node, this time with their history.
std::vector<at::Tensor> recompute(SavedCall& call, const std::vector<at::Tensor>& leaves,
                                  const std::shared_ptr<units::CallInBackward>& in_backward) {
  at::AutoGradMode with_gradients(true);
  ForwardContext::Restore restored(call.context);
  const size_t num_tensors = leaves.size() - call.unit.external.size();
  std::vector<at::Tensor> given;
  for (size_t i = 0; i < num_tensors; ++i) {
    given.push_back(call.recomputed.copies_arguments ? leaves[i].clone() : leaves[i]);
  }
  size_t next = 0;
  torch::jit::Stack arguments = map_tensors(call.arguments, [&](const at::Tensor&) { return given.at(next++); });
  units::UnitParametersScope own(call.parameters, call.unit, UnitCall::kRecompute);
  units::attach_gather_node(own.values().parameters, in_backward);
  own.set();
  ExternalParametersScope external_scope(call.unit,
                                         {leaves.begin() + static_cast<std::ptrdiff_t>(num_tensors), leaves.end()});
  return outputs_of_node(call, units::tensors_in(call.body(std::move(arguments))), given);
}

void differentiate(const std::vector<at::Tensor>& outputs, const variable_list& gradients) {
  variable_list roots, root_gradients;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!gradients[i].defined() || !outputs[i].defined() || !outputs[i].requires_grad()) continue;
    roots.push_back(outputs[i]);
    root_gradients.push_back(gradients[i]);
  }
  if (!roots.empty()) torch::autograd::backward(roots, root_gradients);
}

}  // namespace

variable_list RecomputeNode::apply(variable_list&& gradients) {
  std::lock_guard lock(mutex_);
  DSL_CHECK(call_ != nullptr, "a recomputed call passes through backward once");
  const auto call = std::move(call_);
  auto timer = times_->time_recomputation();
  const auto leaves = leaves_of(*call);
  auto in_backward = std::make_shared<units::CallInBackward>(
      units::CallInBackward{.parameters = &call->parameters, .unit = call->unit.unit, .is_prepared = true});
  differentiate(recompute(*call, leaves, in_backward), gradients);
  // A call whose results do not depend on its parameters has no gradients, and reports that.
  if (!in_backward->is_taken) in_backward->take(std::vector<at::Tensor>(call->unit.locations.size()));
  variable_list out;
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (call->inputs[i].requires_grad) out.push_back(leaves[i].grad());
  }
  return out;
}

}  // namespace dslaunch::runtime::model::recomputation
