// Forward and backward of all micro batches of a step: from their data to the sum of their losses and to this rank's
// gradients. The pass is a list of actions, which another schedule may order differently. One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/engine/setup/micro_batch.hpp"
#include "runtime/precision/loss_scaling.hpp"
#include "runtime/sharding/flat_parameters.hpp"
#include "runtime/telemetry/step_phases.hpp"

namespace dslaunch::runtime::engine::step {

struct PassAction {
  enum class Kind : uint8_t { kForward, kBackward };
  Kind kind = Kind::kForward;
  int64_t micro_batch = 0;
  bool operator==(const PassAction&) const = default;
};

// F0 B0 F1 B1 ...: one micro batch after the other.
std::vector<PassAction> plan_pass(int64_t num_micro_batches);

// Of this rank's micro batches.
struct PassSums {
  at::Tensor loss;  // fp32 scalar on the device
  // The sum of their fractions of labels that count; 0 unless losses are averaged over labels.
  double label_weight = 0;
  int64_t num_tokens = 0;
};

class GradientPass {
 public:
  struct Options {
    std::vector<PassAction> actions;  // every forward before its backward
    int64_t accumulation = 1;         // each micro batch's loss is divided by it
    // false: losses are means over micro batches. true: they are sums over the labels that count, and become sums over
    // all labels; the remaining factor is the same for all ranks (StepVerdict).
    bool sums_over_labels = false;
  };
  using LossOf = std::function<at::Tensor(const setup::MicroBatch&)>;  // 0-dim, with a graph to the parameters

  // The references must outlive the pass. `phases` is notified of the end of every forward and backward.
  GradientPass(Options options, LossOf loss_of, FlatParameters& parameters, const precision::LossScaling& loss_scaling,
               StepPhases& phases);

  // At the beginning of a step: its sums are zero.
  void begin() { sums_ = {}; }
  // Takes a micro batch of the step from `next` and counts it.
  setup::MicroBatch fetch(const std::function<setup::MicroBatch()>& next);
  // Runs the actions on micro batches from `next`, which have been fetched, and reduces the gradients: the state has
  // them. Throws UserError(65) when the loss has no graph.
  void compute(const std::function<setup::MicroBatch()>& next);
  // The loss of one micro batch outside a step, with backward if `with_gradients`; its gradients are dropped.
  at::Tensor recompute_loss(const setup::MicroBatch& batch, bool with_gradients);

  int64_t num_micro_batches() const { return num_micro_batches_; }
  // A step that is replayed instead of computed has its loss written here.
  PassSums& sums() { return sums_; }

 private:
  at::Tensor forward(const setup::MicroBatch& batch, bool is_last);
  void backward(const at::Tensor& loss);

  // fixed after construction
  const Options options_;
  const LossOf loss_of_;
  FlatParameters& parameters_;
  const precision::LossScaling& loss_scaling_;
  StepPhases& phases_;
  const int64_t num_micro_batches_;
  PassSums sums_;  // of this step
};

}  // namespace dslaunch::runtime::engine::step
