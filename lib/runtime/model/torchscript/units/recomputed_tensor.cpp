#include "runtime/model/torchscript/units/recomputed_tensor.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <map>
#include <mutex>
#include <utility>

#include "base/error.hpp"

namespace dslaunch::runtime::model::units {

// A post hook, since a node owns its hooks and calls them after its backward.
class Recomputations final : public torch::autograd::FunctionPostHook {
 public:
  void offer(uint32_t result, std::function<at::Tensor()> compute) { results_[result].compute = std::move(compute); }

  bool add_reader(uint32_t result) {
    const auto found = results_.find(result);
    if (found == results_.end()) return false;
    found->second.readers += 1;
    return true;
  }

  at::Tensor value(uint32_t result) {
    Result& own = results_.at(result);
    if (at::GradMode::is_enabled()) return own.compute();  // its history belongs to this reader
    const std::lock_guard lock(mutex_);
    if (!own.value.defined()) own.value = own.compute();
    own.reads += 1;
    if (own.reads < own.readers) return own.value;
    own.reads = 0;
    return std::exchange(own.value, at::Tensor());
  }

  // A backward of some readers only leaves a value.
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    const std::lock_guard lock(mutex_);
    for (auto& [number, result] : results_) {
      result.value = at::Tensor();
      result.reads = 0;
    }
    return outputs;
  }

 private:
  struct Result {
    std::function<at::Tensor()> compute;
    int readers = 0, reads = 0;  // in this backward
    at::Tensor value;            // while readers follow
  };

  std::mutex mutex_;                    // of values and reads
  std::map<uint32_t, Result> results_;  // by number
};

namespace {

Recomputations* recomputations_of(const torch::autograd::Node& node) {
  for (const auto& hook : node.post_hooks()) {
    if (auto* found = dynamic_cast<Recomputations*>(hook.get())) return found;
  }
  return nullptr;
}

bool is_reshaped(const at::Tensor& tensor, const at::Tensor& base) {
  return base.is_contiguous() && tensor.is_contiguous() && tensor.numel() == base.numel() &&
         tensor.scalar_type() == base.scalar_type() && tensor.storage_offset() == base.storage_offset();
}

}  // namespace

void offer_recomputation(const at::Tensor& result, std::function<at::Tensor()> compute) {
  torch::autograd::Node& node = *result.grad_fn();
  Recomputations* recomputations = recomputations_of(node);
  if (recomputations == nullptr) {
    auto made = std::make_unique<Recomputations>();
    recomputations = made.get();
    node.add_post_hook(std::move(made));
  }
  recomputations->offer(static_cast<uint32_t>(result.output_nr()), std::move(compute));
}

c10::intrusive_ptr<RecomputedTensor> RecomputedTensor::of(const at::Tensor& tensor) {
  const bool is_view = tensor.is_view();
  const at::Tensor whole = is_view ? at::Tensor(tensor._base()) : tensor;
  if (!tensor.grad_fn() || !whole.grad_fn() || (is_view && !is_reshaped(tensor, whole))) return {};
  Recomputations* recomputations = recomputations_of(*whole.grad_fn());
  const auto result = static_cast<uint32_t>(whole.output_nr());
  if (recomputations == nullptr || !recomputations->add_reader(result)) return {};
  auto out = c10::make_intrusive<RecomputedTensor>(whole.grad_fn(), *recomputations, result);
  if (is_view) out->shape_ = tensor.sizes().vec();
  return out;
}

at::Tensor RecomputedTensor::value() const {
  const auto node = node_.lock();
  DSL_CHECK(node != nullptr, "the node of a tensor outlives those that read it");
  const at::Tensor whole = recomputations_.value(result_);
  return shape_ ? whole.reshape(*shape_) : whole;
}

}  // namespace dslaunch::runtime::model::units
