#include "runtime/engine/step/step_graph.hpp"

#include <ATen/ATen.h>

#include <map>
#include <utility>

#include "base/error.hpp"
#include "runtime/device/random_state.hpp"
#include "runtime/model/torchscript/file/script_error.hpp"

namespace dslaunch::runtime::engine::step {
namespace {

std::vector<at::Tensor> tensors_of(const std::vector<setup::MicroBatch>& batches) {
  std::vector<at::Tensor> out;
  for (const auto& batch : batches) {
    out.insert(out.end(), batch.inputs.begin(), batch.inputs.end());
    out.insert(out.end(), batch.labels.begin(), batch.labels.end());
  }
  return out;
}

std::vector<setup::MicroBatch> copy_of(std::vector<setup::MicroBatch> batches) {
  for (auto& batch : batches) {
    for (auto* tensors : {&batch.inputs, &batch.labels}) {
      for (auto& tensor : *tensors) tensor = tensor.clone(at::MemoryFormat::Contiguous);
    }
  }
  return batches;
}

// The same memory, which this tensor does not keep allocated.
at::Tensor view_of(const at::Tensor& tensor) {
  return at::for_blob(tensor.data_ptr(), tensor.sizes())
      .strides(tensor.strides())
      .options(tensor.options())
      .target_device(tensor.device())
      .make_tensor();
}

}  // namespace

ShapeKey shapes_of(const std::vector<setup::MicroBatch>& batches) {
  ShapeKey key;
  for (const auto& tensor : tensors_of(batches)) {
    key.push_back(static_cast<int64_t>(tensor.scalar_type()));
    key.push_back(tensor.dim());
    key.insert(key.end(), tensor.sizes().begin(), tensor.sizes().end());
  }
  return key;
}

Result<> StepGraph::capture(const std::vector<setup::MicroBatch>& batches, Step step) try {
  step_ = std::move(step);
  batches_ = copy_of(batches);
  const at::Tensor random = device::save_random_state(at::kCPU);
  graph_->capture([&] { results_ = step_(batches_); });
  if (!at::equal(random, device::save_random_state(at::kCPU))) {
    device::restore_random_state(random, at::kCPU);
    results_.clear();
    return Failure{"the model draws random numbers on the host"};
  }
  return {};
} catch (const std::exception& error) {  // LibTorch throws at work that a graph cannot hold
  results_.clear();
  return Failure{model::file::cause_of(error)};
}

// Memory that somebody else holds too is not the graph's alone.
void StepGraph::share_results() {
  std::map<const c10::StorageImpl*, size_t> num_own;
  for (const auto& result : results_) {
    DSL_CHECK(result.defined(), "a step has a loss and gradients");
    num_own[result.storage().unsafeGetStorageImpl()] += 1;
  }
  std::vector<at::Tensor> views;
  for (const auto& result : results_) {
    const auto& storage = result.storage();
    views.push_back(storage.use_count() == num_own[storage.unsafeGetStorageImpl()] ? view_of(result) : result);
  }
  results_ = std::move(views);
}

const std::vector<at::Tensor>& StepGraph::replay(const std::vector<setup::MicroBatch>& batches) {
  const auto from = tensors_of(batches), to = tensors_of(batches_);
  DSL_CHECK(from.size() == to.size(), "a step has the captured number of tensors");
  for (size_t i = 0; i < to.size(); ++i) {
    DSL_CHECK(from[i].sizes() == to[i].sizes() && from[i].scalar_type() == to[i].scalar_type(),
              "a step has the captured shapes");
    to[i].copy_(from[i]);
  }
  graph_->replay();
  return results_;
}

}  // namespace dslaunch::runtime::engine::step
