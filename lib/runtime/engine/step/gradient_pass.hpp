// Forward and backward of all micro batches of a step: from their data to the sum of their losses and to this rank's
// gradients. The pass is a schedule (runtime/pipeline): of a rank that has the whole model, one micro batch after the
// other; of a stage of a pipeline, its part of the pipeline's schedule. One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/engine/setup/micro_batch.hpp"
#include "runtime/engine/step/forward_loss.hpp"
#include "runtime/engine/step/pipeline_clock.hpp"
#include "runtime/engine/step/stage_link.hpp"
#include "runtime/pipeline/schedule.hpp"
#include "runtime/precision/loss_scaling.hpp"
#include "runtime/sharding/flat_parameters.hpp"
#include "runtime/state/deferred_gradients.hpp"
#include "runtime/telemetry/step_phases.hpp"

namespace dslaunch::runtime::engine::step {

// Of this rank's micro batches.
struct PassSums {
  at::Tensor loss;  // fp32 scalar on the device; 0 on a stage that is not the last
  // The sum of their fractions of labels that count; 0 unless losses are averaged over labels.
  double label_weight = 0;
  int64_t num_tokens = 0;
};

class GradientPass {
 public:
  struct Options {
    std::vector<pipeline::Action> actions;
    int64_t accumulation = 1;  // each micro batch's loss is divided by it
    // false: losses are means over micro batches. true: they are sums over the labels that count, and become sums over
    // all labels; the remaining factor is the same for all ranks (StepVerdict).
    bool sums_over_labels = false;
    // What sums are divided by until then, where micro batches differ in their size; 0: the labels of each.
    int64_t labels_of_micro_batch = 0;
    at::Device device = at::kCPU;
    // Called at the beginning of each part of a pipeline's schedule ("forward of micro batch 3"), for the reports of
    // ranks that wait for this one. May be empty.
    std::function<void(const std::string& activity)> activity;
    // Of a rank that has the whole model: called before the step's last backward, with the sum of the losses of its
    // micro batches (fp32). May be empty.
    std::function<void(const at::Tensor& loss)> before_last_backward;
    PipelineClock* clock = nullptr;  // may be null
    // Of a stage: what it keeps and what would need less, for the message when an allocation fails. May be empty.
    std::function<std::string()> memory_advice;
  };
  using Forward = std::function<StageResult(const setup::MicroBatch&, const model::CarriedValues&)>;

  // `link`: null if this rank has the whole model. The references must outlive the pass. `phases` is notified of the
  // end of every forward and backward.
  GradientPass(Options options, Forward forward, FlatParameters& parameters, const precision::LossScaling& loss_scaling,
               StepPhases& phases, StageLink* link = nullptr);

  // At the beginning of a step: its sums are zero.
  void begin() { sums_ = {}; }
  // Takes a micro batch of the step from `next` and counts it.
  setup::MicroBatch fetch(const std::function<setup::MicroBatch()>& next);
  // Runs the actions on micro batches from `next`, which have been fetched, and reduces the gradients: the state has
  // them. Throws UserError(65) when the loss has no graph.
  void compute(const std::function<setup::MicroBatch()>& next);
  // The loss of one micro batch outside a step, with backward if `with_gradients`; its gradients are dropped. 0 on a
  // stage that is not the last. Collective among the stages of a pipeline.
  at::Tensor loss_of(const setup::MicroBatch& batch, bool with_gradients);

  int64_t num_micro_batches() const { return num_micro_batches_; }
  // A step that is replayed instead of computed has its loss written here.
  PassSums& sums() { return sums_; }

 private:
  void report(const std::string& activity) const;
  // One that computes. Throws OutOfMemoryError with the stage.
  void run(const pipeline::Action& action, StagePassage& passage);
  void carry_out(const pipeline::Action& action, StagePassage& passage);
  void forward(const pipeline::Action& action, StagePassage& passage);
  void take_loss(StagePassage& passage) const;
  int64_t num_all_labels(const setup::MicroBatch& batch) const;
  // Of an input gradient, the weight gradients that can come later are left in the passage.
  void backward(const pipeline::Action& action, StagePassage& passage);
  void weight_gradient(const pipeline::Action& action, StagePassage& passage);
  void run_backward_of(const StagePassage& passage) const;
  at::Tensor loss_with(const at::Tensor& loss) const;
  StagePassage run_alone(const setup::MicroBatch& batch, bool with_gradients);
  void exchange_alone(pipeline::ActionKind kind, StagePassage& passage);

  // fixed after construction
  const Options options_;
  const Forward forward_;
  FlatParameters& parameters_;
  const precision::LossScaling& loss_scaling_;
  StepPhases& phases_;
  StageLink* const link_;
  const int64_t num_micro_batches_;
  PassSums sums_;               // of this step
  int64_t num_backwards_ = 0;   // likewise
  DeferredGradients deferred_;  // of the backward that is running
};

}  // namespace dslaunch::runtime::engine::step
