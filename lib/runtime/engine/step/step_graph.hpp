// A step from its micro batches to its gradients as one CUDA graph ("graph_harvesting"): thousands of kernel launches
// become one. It is captured once and then replayed for any batches of the same shapes. A replay does not repeat the
// model's work on the host, so a model whose host code does more than issue device work is not captured
// (ModelFacts::capturable). One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "runtime/engine/setup/micro_batch.hpp"
#include "runtime/engine/step/device_graph.hpp"
#include "runtime/engine/step/shape_buckets.hpp"

namespace dslaunch::runtime::engine::step {

// The dtypes and sizes of all tensors of the batches.
ShapeKey shapes_of(const std::vector<setup::MicroBatch>& batches);

class StepGraph {
 public:
  explicit StepGraph(std::unique_ptr<DeviceGraph> graph) : graph_(std::move(graph)) {}
  const DeviceGraph& device_graph() const { return *graph_; }

  // `step` runs the given micro batches, which are at the addresses that every replay reads, and returns the tensors
  // that the rest of the step needs. Nothing runs during capture. Once; after a failure this object must not be used
  // again.
  using Step = std::function<std::vector<at::Tensor>(const std::vector<setup::MicroBatch>& batches)>;
  Result<> capture(const std::vector<setup::MicroBatch>& batches, Step step);
  // After capture(), when nobody else holds the results any more: their memory may be used by graphs that share it.
  void share_results();
  // The results of `step` for these batches, which must have the captured batches' shapes. They are valid until the
  // next replay of this graph, or of one that shares its memory, whatever tensors hold them.
  const std::vector<at::Tensor>& replay(const std::vector<setup::MicroBatch>& batches);

 private:
  std::unique_ptr<DeviceGraph> graph_;
  Step step_;                               // what was captured
  std::vector<setup::MicroBatch> batches_;  // inputs of the graph
  std::vector<at::Tensor> results_;         // outputs of the graph
};

}  // namespace dslaunch::runtime::engine::step
