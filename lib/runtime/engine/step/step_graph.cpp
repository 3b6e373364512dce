#include "runtime/engine/step/step_graph.hpp"

#include <ATen/ATen.h>

#include "runtime/model/script_error.hpp"
#include "runtime/state/random_state.hpp"

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

}  // namespace

Result<> StepGraph::capture(const std::vector<setup::MicroBatch>& batches, const Step& step) try {
  auto graph = make_device_graph(device_);
  batches_ = copy_of(batches);
  const at::Tensor random = save_random_state(at::kCPU);
  graph->capture([&] { results_ = step(batches_); });
  if (!at::equal(random, save_random_state(at::kCPU))) {
    restore_random_state(random, at::kCPU);
    results_.clear();
    return Failure{"the model draws random numbers on the host"};
  }
  graph_ = std::move(graph);
  return {};
} catch (const std::exception& error) {  // LibTorch throws at work that a graph cannot hold
  return Failure{model::cause_of(error)};
}

const std::vector<at::Tensor>& StepGraph::replay(const std::vector<setup::MicroBatch>& batches) {
  const auto from = tensors_of(batches), to = tensors_of(batches_);
  for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
  graph_->replay();
  return results_;
}

}  // namespace dslaunch::runtime::engine::step
