// A step from its micro batches to its gradients as one graph of the device ("graph_harvesting"): thousands of launches
// become one. The first steps run as they are; then one is recorded and, from the next on, replayed. What a run of the
// model does on the host is not repeated, so a model that does more there than issue work is not recorded
// (ModelSource::recording_obstacle). One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/engine/device_graph.hpp"
#include "runtime/engine/micro_batch.hpp"

namespace dslaunch::runtime {

class StepGraph {
 public:
  explicit StepGraph(at::Device device) : device_(device) {}

  // At the start of every step that is not replayed: counts it; true when enough came before for it to be recorded.
  bool begin_step() { return ++num_steps_ == kStepsBefore + 1; }
  bool is_recorded() const { return graph_ != nullptr; }

  // `step` runs the micro batches that it gets, which lie where they will lie at every replay, and returns what the
  // rest of the step needs. Nothing is run yet. Throws what speaks against recording; begin_step() will not ask again.
  using Step = std::function<std::vector<at::Tensor>(const std::vector<MicroBatch>& batches)>;
  void record(const std::vector<MicroBatch>& batches, const Step& step);
  // What `step` returned, computed from these batches, whose shapes are those of the recorded ones; to be read until
  // the next replay.
  const std::vector<at::Tensor>& replay(const std::vector<MicroBatch>& batches);

 private:
  // Libraries choose their algorithms and take their memory, and ranks learn the order of their collectives.
  static constexpr int kStepsBefore = 3;

  at::Device device_;
  int64_t num_steps_ = 0;
  std::unique_ptr<DeviceGraph> graph_;  // once recorded
  std::vector<MicroBatch> batches_;     // that the graph reads
  std::vector<at::Tensor> results_;     // that it writes
};

}  // namespace dslaunch::runtime
