// Captures a step from its micro batches to its gradients as one CUDA graph ("graph_harvesting"): thousands of kernel
// launches become one. The first steps run eagerly; then one step is captured and, from the next step on, replayed. A
// replay does not repeat the model's work on the host, so a model whose host code does more than issue device work is
// not captured (ModelFacts::capturable). One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "runtime/engine/setup/micro_batch.hpp"
#include "runtime/engine/step/device_graph.hpp"

namespace dslaunch::runtime::engine::step {

class StepGraph {
 public:
  explicit StepGraph(at::Device device) : device_(device) {}

  // Call at the start of every step that is not replayed: counts it; true when this step is to be captured.
  bool begin_step() { return ++num_steps_ == kStepsBefore + 1; }
  bool is_captured() const { return graph_ != nullptr; }

  // `step` runs the given micro batches, which are at the addresses that every replay reads, and returns the tensors
  // that the rest of the step needs. Nothing runs during capture. After a failure begin_step() never returns true
  // again.
  using Step = std::function<std::vector<at::Tensor>(const std::vector<setup::MicroBatch>& batches)>;
  Result<> capture(const std::vector<setup::MicroBatch>& batches, const Step& step);
  // The results of `step` for these batches, which must have the captured batches' shapes; valid until the next replay.
  const std::vector<at::Tensor>& replay(const std::vector<setup::MicroBatch>& batches);

 private:
  // Warm-up: libraries choose algorithms and allocate memory, and ranks learn the order of their collectives.
  static constexpr int kStepsBefore = 3;

  at::Device device_;
  int64_t num_steps_ = 0;
  std::unique_ptr<DeviceGraph> graph_;      // null until captured
  std::vector<setup::MicroBatch> batches_;  // inputs of the graph
  std::vector<at::Tensor> results_;         // outputs of the graph
};

}  // namespace dslaunch::runtime::engine::step
