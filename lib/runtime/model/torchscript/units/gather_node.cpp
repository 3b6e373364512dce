#include "runtime/model/torchscript/units/gather_node.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace dslaunch::runtime::model::units {
namespace {

struct GatherNode : torch::autograd::Node {
  explicit GatherNode(std::shared_ptr<CallInBackward> call) : call_(std::move(call)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    call_->take(std::move(gradients));
    return {};
  }
  std::string name() const override { return "dslaunch::GatherNode"; }
  const std::shared_ptr<CallInBackward>& call() const { return call_; }

 private:
  std::shared_ptr<CallInBackward> call_;
};

// Whether the backward that this thread is running will reach the node.
bool is_in_this_backward(const std::weak_ptr<torch::autograd::Node>& node) {
  const auto alive = node.lock();
  return alive && torch::autograd::get_current_graph_task_nodes_in_graph()->count(alive.get()) > 0;
}

// Whether all gradients that reach the node in the backward that this thread is running go to its call and nowhere
// else: not where the model asks for some gradients in its forward, or for gradients of gradients.
bool delivers_all(const std::weak_ptr<torch::autograd::Node>& node) {
  namespace autograd = torch::autograd;
  if (at::GradMode::is_enabled() || autograd::get_current_graph_task_keep_graph()) return false;
  const auto* needed = autograd::get_current_graph_task_exec_info();
  if (needed == nullptr || !needed->empty()) return false;
  const auto alive = node.lock();
  return alive && alive->tensor_pre_hooks().empty() && alive->pre_hooks().empty() &&
         alive->retains_grad_hooks().empty();
}

// The calls that have postponed GEMMs, of the backward that the thread runs.
thread_local std::vector<std::weak_ptr<CallInBackward>> calls_with_postponed;

bool write(UnitParameters& parameters, int unit, size_t parameter, const WeightGemm& gemm) {
  const auto destination = parameters.gradient_destination(unit, parameter, gemm.factors());
  if (destination) gemm.add_to(*destination);
  return destination.has_value();
}

void collect(const c10::IValue& value, std::vector<at::Tensor>& out, bool enters_objects = false) {
  value.visit([&](const c10::IValue& part) {
    if (part.isTensor() && part.toTensor().defined()) out.push_back(part.toTensor());
    return part.isObject() && !enters_objects;  // a module's state is not a result of the call
  });
}

}  // namespace

void CallInBackward::prepare() {
  if (!std::exchange(is_prepared, true)) parameters->prepare_backward(unit);
}

void CallInBackward::take(std::vector<at::Tensor> gradients) {
  run_postponed();
  for (auto& [parameter, part] : std::exchange(computed, {})) {
    at::Tensor& sum = gradients[parameter];
    sum = sum.defined() ? sum + part : std::move(part);
  }
  is_prepared = is_taken = true;      // a hook that runs after the gradients has nothing left to prepare
  for (auto& gradient : gradients) {  // an embedding with sparse=True
    if (gradient.defined() && gradient.is_sparse()) gradient = gradient.to_dense();
  }
  if (deferred.empty()) return parameters->take_gradients(unit, std::move(gradients));
  parameters->deferred_gradients()->add([owner = parameters, unit = unit, gradients = std::move(gradients),
                                         parts = std::exchange(deferred, {})]() mutable {
    for (auto& [parameter, gradient] : parts) {
      at::Tensor& sum = gradients[parameter];
      if (const at::Tensor part = gradient(); part.defined()) sum = sum.defined() ? sum + part : part;
      gradient = nullptr;  // with what it needed
    }
    owner->take_gradients(unit, std::move(gradients));
  });
}

bool CallInBackward::defer(size_t parameter, std::function<at::Tensor()> gradient) {
  if (!may_defer() || !parameters->deferred_gradients()->is_open()) return false;
  deferred.push_back({parameter, std::move(gradient)});
  return true;
}

std::function<at::Tensor()> CallInBackward::gradient_by(size_t parameter, const WeightGemm& gemm,
                                                        bool may_write) const {
  return [owner = parameters, unit = unit, parameter, may_write, gemm = gemm.detached()] {
    return may_write && write(*owner, unit, parameter, gemm) ? at::Tensor() : gemm.compute();
  };
}

bool CallInBackward::take_gemm(size_t parameter, const WeightGemm& gemm, bool may_write) {
  if (!delivers_all(gather_node)) return false;
  return defer(parameter, gradient_by(parameter, gemm, may_write)) ||
         (may_write && write(*parameters, unit, parameter, gemm));
}

void CallInBackward::run_postponed() {
  for (auto& [parameter, gradient] : std::exchange(postponed, {})) {
    if (at::Tensor part = gradient(); part.defined()) computed.emplace_back(parameter, std::move(part));
    gradient = nullptr;  // with what it needed
  }
}

bool postpone_gemm(const GatheredParameter& parameter, const WeightGemm& gemm, bool may_write) {
  auto& [call, index] = parameter;
  if (!delivers_all(call->gather_node)) return false;
  auto gradient = call->gradient_by(index, gemm, may_write);
  if (call->defer(index, gradient)) return true;
  if (call->postponed.empty()) calls_with_postponed.push_back(call);
  call->postponed.push_back({index, std::move(gradient)});
  return true;
}

void run_postponed_gemms() {
  for (const auto& each : std::exchange(calls_with_postponed, {})) {
    if (const auto call = each.lock()) call->run_postponed();
  }
}

void CallInBackward::end() {
  // A backward that keeps its graph leaves part of the call to a later backward: the model computes gradients in its
  // forward.
  if (torch::autograd::get_current_graph_task_keep_graph()) return;
  if (is_in_this_backward(gather_node)) return;
  if (is_prepared && !is_taken) take(std::vector<at::Tensor>(num_parameters));
}

void attach_gather_node(std::vector<at::Tensor>& views, const std::shared_ptr<CallInBackward>& call) {
  const auto node = std::make_shared<GatherNode>(call);
  call->gather_node = node;
  call->num_parameters = views.size();
  for (auto& view : views) torch::autograd::set_history(view, node);
}

bool is_gathered(const at::Tensor& tensor) {
  return tensor.grad_fn() && dynamic_cast<const GatherNode*>(tensor.grad_fn().get()) != nullptr;
}

std::optional<GatheredParameter> gathered_parameter(const at::Tensor& tensor) {
  if (!tensor.grad_fn()) return std::nullopt;
  const auto* node = dynamic_cast<const GatherNode*>(tensor.grad_fn().get());
  if (node == nullptr) return std::nullopt;
  return GatheredParameter{node->call(), static_cast<size_t>(tensor.output_nr())};
}

std::vector<at::Tensor> tensors_in(const c10::IValue& value) {
  std::vector<at::Tensor> out;
  collect(value, out);
  return out;
}

std::vector<at::Tensor> tensors_in_all(at::ArrayRef<c10::IValue> values) {
  std::vector<at::Tensor> out;
  for (const auto& value : values) collect(value, out);
  return out;
}

std::vector<at::Tensor> tensors_reached_from(at::ArrayRef<c10::IValue> values) {
  std::vector<at::Tensor> out;
  for (const auto& value : values) collect(value, out, /*enters_objects=*/true);
  return out;
}

bool shares_storage(const std::vector<at::Tensor>& some, const std::vector<at::Tensor>& others) {
  std::unordered_set<const void*> storages;
  for (const auto& tensor : some) {
    if (tensor.has_storage() && tensor.numel() > 0) storages.insert(tensor.storage().unsafeGetStorageImpl());
  }
  return std::any_of(others.begin(), others.end(), [&](const at::Tensor& tensor) {
    return tensor.has_storage() && storages.count(tensor.storage().unsafeGetStorageImpl()) > 0;
  });
}

}  // namespace dslaunch::runtime::model::units
