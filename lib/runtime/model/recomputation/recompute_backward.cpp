#include "runtime/model/recomputation/recompute_backward.hpp"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/model/torchscript/units/bound_unit.hpp"
#include "runtime/model/torchscript/units/gather_node.hpp"

namespace dslaunch::runtime::model::recomputation {
namespace {

using torch::autograd::variable_list;

constexpr const char* kDiffers =
    "its recomputation returned other outputs than its first forward; something outside the unit changed its behaviour";

void recompute(SavedCall& call, UnitCall purpose);

// The value of an input, without history.
at::Tensor value_of(const SavedCall& call, const SavedCall::Input& input) {
  if (input.producer != nullptr) {
    if (!input.producer->pass)
      recompute(*input.producer, UnitCall::kInference);  // its backward prepares the unit again
    return input.producer->pass->detached.at(input.produced_output);
  }
  if (!input.stored->is_intact()) refuse(call, "one of its arguments was changed in place before backward");
  return input.stored->get();
}

std::vector<at::Tensor> leaves_of(const SavedCall& call) {
  for (const auto& [version, saved_version] : call.overlapping) {
    if (version.current_version() != saved_version) {
      refuse(call, "two of its outputs share memory, and one of the two was changed in place");
    }
  }
  std::vector<at::Tensor> out;
  for (const auto& input : call.inputs) {
    out.push_back(value_of(call, input).detach().set_requires_grad(input.requires_grad));
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

// Outputs that view memory of parameters, which does not stay, are copied.
std::vector<at::Tensor> detached_outputs(const std::vector<at::Tensor>& outputs, const UnitValues& own,
                                         const std::vector<at::Tensor>& external) {
  std::vector<at::Tensor> parameters = external;
  for (const auto* more : {&own.parameters, &own.frozen})
    parameters.insert(parameters.end(), more->begin(), more->end());
  std::vector<at::Tensor> out;
  for (const auto& output : outputs) {
    const at::Tensor value = output.detach();
    out.push_back(units::shares_storage({value}, parameters) ? value.clone() : value);
  }
  return out;
}

// Recomputes the outputs of the node, this time with their history. `purpose`: kRecompute, or kInference when the
// unit's parameters are released again until backward comes to this call.
void recompute(SavedCall& call, UnitCall purpose) {
  DSL_CHECK(!call.is_over, "a recomputed call passes through backward once");
  const auto leaves = leaves_of(call);
  auto in_backward = std::make_shared<units::CallInBackward>(units::CallInBackward{
      .parameters = &call.parameters, .unit = call.unit.unit, .is_prepared = purpose == UnitCall::kRecompute});
  at::AutoGradMode with_gradients(true);
  ForwardContext::Restore restored(call.context);
  const size_t num_tensors = leaves.size() - call.unit.external.size();
  std::vector<at::Tensor> given;
  for (size_t i = 0; i < num_tensors; ++i) {
    given.push_back(call.recomputed.copies_arguments ? leaves[i].clone() : leaves[i]);
  }
  size_t next = 0;
  torch::jit::Stack arguments = map_tensors(call.arguments, [&](const at::Tensor&) { return given.at(next++); });
  units::UnitParametersScope own(call.parameters, call.unit, purpose);
  units::attach_gather_node(own.values().parameters, in_backward);
  own.set();
  const std::vector<at::Tensor> external(leaves.begin() + static_cast<std::ptrdiff_t>(num_tensors), leaves.end());
  ExternalParametersScope external_scope(call.unit, external);
  auto outputs = outputs_of_node(call, units::tensors_in(call.body(std::move(arguments))), given);
  std::vector<at::Tensor> values;
  if (purpose != UnitCall::kRecompute) {
    values = detached_outputs(outputs, own.values(), external);
    own.release({});
  }
  call.pass = SavedCall::Pass{leaves, std::move(outputs), std::move(values), std::move(in_backward)};
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
  if (!call->pass) recompute(*call, UnitCall::kRecompute);
  const auto pass = std::exchange(call->pass, std::nullopt);
  call->is_over = true;
  pass->in_backward->prepare();
  differentiate(pass->outputs, gradients);
  // A call whose results do not depend on its parameters has no gradients, and reports that.
  if (!pass->in_backward->is_taken) pass->in_backward->take(std::vector<at::Tensor>(call->unit.locations.size()));
  variable_list out;
  for (size_t i = 0; i < pass->leaves.size(); ++i) {
    if (call->inputs[i].requires_grad) out.push_back(pass->leaves[i].grad());
  }
  return out;
}

std::string PassTimes::take_line() {
  if (!profile_) return {};
  return fmt::format("recomputation: {} calls | forward {:.2f} ms | recomputation and backward {:.2f} ms",
                     std::exchange(num_calls_, 0), std::exchange(forward_ms_, 0.0), std::exchange(backward_ms_, 0.0));
}

void PassTimes::wait_for_device() const {
  if (!synchronize_ || device_.is_cpu()) return;
  c10::impl::VirtualGuardImpl guard(device_.type());
  guard.getStream(device_).synchronize();
}

}  // namespace dslaunch::runtime::model::recomputation
