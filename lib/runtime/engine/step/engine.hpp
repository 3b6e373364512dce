// One training step, composed of the techniques: forward, backward, reduce, clip, update, gather. Engine::train_step in
// engine.cpp lists these phases in order. One thread.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "config/job_config.hpp"
#include "runtime/engine/setup/micro_batch.hpp"
#include "runtime/engine/step/evaluation.hpp"
#include "runtime/engine/step/loss.hpp"
#include "runtime/engine/step/step_clock.hpp"
#include "runtime/engine/step/step_graph.hpp"
#include "runtime/model/model.hpp"
#include "runtime/optim/flat_optimizer.hpp"
#include "runtime/precision/loss_scaling.hpp"
#include "runtime/precision/precision_choice.hpp"
#include "runtime/sharding/flat_parameters.hpp"
#include "runtime/telemetry/step_phases.hpp"

namespace dslaunch::runtime {

struct StepResult {
  int64_t step = 0;             // 1-based
  double loss = 0;              // mean of the micro batches' means over all data ranks, or over labels (LossAverage)
  double lr = 0;                // the learning rate of this step
  double grad_norm = 0;         // global, before clipping, without the loss scale
  double loss_scale = 1;        // the loss scale of this step
  bool overflow = false;        // the step was skipped
  std::string overflow_line;    // how an overflow changed the loss scale, for the console
  double next_lr = 0;           // of the next step, as far as this step has determined it
  double next_loss_scale = 1;   // likewise
  int64_t num_skipped = 0;      // over all steps since the start of training
  bool stop_requested = false;  // by any rank: all ranks see it at the same step
  int64_t num_tokens = 0;       // of this rank's micro batches
  double step_ms = 0;  // from the end of the previous step (or start, or restart_clock()) to the end of this step
  // Why training cannot continue.
  std::optional<std::string> diagnosis;
};

// The current step's update, with its learning rates and gradient factor, of all spans of this rank or copies of them.
using ApplyUpdate = std::function<void(std::span<SpanState>)>;

struct EngineOptions {
  at::Device device = at::kCPU;
  precision::ModelDtypes dtypes;  // in which parameters are computed
  int64_t total_steps = 0;        // of the whole run, for the schedules that need it
  // A second communicator over the data group's ranks, for stage 3's all-gathers; null: they use the data group.
  comm::Communicator* gather_group = nullptr;
  comm::Communicator* secondary_group = nullptr;         // see ShardingOptions
  std::function<void(const std::string& text)> barrier;  // see ShardingOptions
  StepPhases phases;                                     // notified of the current phase of each step
  bool for_evaluation = false;                           // no training steps: moments are not allocated
  int replicated_ranks = 1;  // number of ranks whose micro batches this engine computes by itself, slice by slice
  // Called in every step before the update with the state and with the update, which it may apply to copies.
  std::function<void(std::span<const SpanState>, const ApplyUpdate&)> watch_update;
};

// A part of a parameter's state that this rank owns: what a checkpoint stores. `values`: 1-D, on the engine's device.
struct OwnedState {
  std::string parameter;
  std::string state;  // "master" or a moment of the optimizer
  int64_t begin = 0;  // first element within the parameter
  at::Tensor values;
};

// A part of a frozen parameter that this rank holds at stage 3.
struct FrozenPart {
  int parameter = 0;
  int64_t begin = 0, count = 0;  // elements
};

class Engine {
 public:
  // Moves the model to the device. The model and `data_group` must outlive the engine. `read`: reads initial elements
  // of a parameter (also for models exported without values).
  Engine(Model& model, const config::JobConfig& config, EngineOptions options, comm::Communicator& data_group,
         const FlatParameters::ReadElements& read);

  // One optimizer step over `accumulation` micro batches from `next`. On a device it returns the previous step's result
  // (empty at the first call): metrics are read one step late so that the host never waits for the device.
  std::optional<StepResult> train_step(const std::function<MicroBatch()>& next, bool stop_requested);
  // The result that is still in flight, if any.
  std::optional<StepResult> finish();
  // The mean loss over the batches of all ranks (evaluation.hpp). Training continues as if it had not happened.
  EvaluationResult evaluate(const std::function<std::optional<EvaluationBatch>()>& next,
                            const std::function<bool()>& stop_requested);
  // For a diagnosis, after a step whose loss or gradient was not finite (such a step leaves the parameters unchanged):
  // computes the loss of a micro batch again, with backward if `with_gradients`. The model gets its parameters from
  // `parameters`, which forwards to unit_parameters(). Collective at stage 3. Training cannot continue afterwards.
  at::Tensor recompute_loss(const MicroBatch& batch, UnitParameters& parameters, bool with_gradients);

  int64_t steps_done() const { return steps_done_; }
  // The state that this rank owns; views, valid until the next step. At stage 0 (replicated) only rank 0 owns it.
  std::vector<OwnedState> owned_state() { return named_state(parameters_->state()); }
  // The same for other values of this engine's spans.
  std::vector<OwnedState> named_state(std::span<const SpanState> states) const;
  // This rank's parts of sharded frozen parameters, and which ones are sharded; the others are whole on every rank.
  std::vector<FrozenPart> owned_frozen() const;
  bool shards_frozen(int parameter) const { return parameters_->shards_frozen(parameter); }
  // The largest number of moments in any optimizer group.
  int64_t num_moments() const;
  // Call after writing masters and moments through owned_state(): recomputes the parameters from the masters and takes
  // counters and loss scale from another engine's steps_done() and scalars().
  void load_state_from(int64_t steps_done, const std::map<std::string, double>& scalars);
  // The parameters and gradients of the model's units; use outside a step, and not during an evaluation.
  UnitParameters& unit_parameters() { return *parameters_; }
  // Restores parameters, moments, counters and the loss scale. `read` fills elements of (parameter, state); `scalars`
  // may lack entries (a checkpoint of an older version). With `fresh_moments` bias correction starts from zero while
  // the schedule continues. `barrier`: see FlatParameters::load().
  using ReadState =
      std::function<void(const std::string& parameter, const std::string& state, int64_t begin, at::Tensor out)>;
  void restore(int64_t steps_done, const std::map<std::string, double>& scalars, bool fresh_moments,
               const ReadState& read, const std::function<void()>& barrier);
  // The scalar state of a checkpoint; valid after finish().
  std::map<std::string, double> scalars() const;
  // Called in every step before the state is updated: a reader of the state enqueues its wait on the stream here.
  void set_before_update(std::function<void()> hook) { before_update_ = std::move(hook); }
  // Time since the last step (an evaluation, a save) is excluded from the next step's time.
  void restart_clock() { clock_.restart(); }

 private:
  struct InFlight {
    StepResult result;
    at::Tensor statistics;  // as statistics_, on the host once `arrived`
    StepClock::Mark arrived;
  };

  void set_counters(int64_t steps_done, std::map<std::string, double> scalars, bool fresh_moments);
  void move_model_to_device(const FlatParameters::ReadElements& read);
  void set_up_step_graph();
  int64_t num_micro_batches() const { return config_.batch.accumulation * options_.replicated_ranks; }
  void compute_gradients(const std::function<MicroBatch()>& next);
  void compute_as_graph(const std::function<MicroBatch()>& next);
  void capture_step(const std::vector<MicroBatch>& batches);
  bool all_ranks_can_capture(const Result<>& own);
  void take_gradients(const std::vector<at::Tensor>& results);
  double weight_of_labels(const MicroBatch& batch) const;
  void forward_backward(const MicroBatch& batch, bool is_last);
  at::Tensor loss_of(const MicroBatch& batch);
  void combine_statistics(bool stop_requested);
  at::Tensor weigh_by_labels(double total_micro_batches);
  void update_state();
  const at::Tensor& skip_after_nonfinite();
  void round_masters();
  optim::StepRates rates_after(int64_t applied_steps) const;
  std::optional<StepResult> publish_result(StepResult result);
  StepResult read_statistics(InFlight in_flight);
  void follow_loss_scale(StepResult& result, const float* report);

  // fixed after construction
  Model& model_;
  const config::JobConfig& config_;
  EngineOptions options_;
  comm::Communicator& data_group_;
  std::unique_ptr<Loss> loss_;
  optim::OptimizerGroups optimizer_groups_;
  std::unique_ptr<FlatParameters> parameters_;
  std::unique_ptr<optim::FlatOptimizer> optimizer_;
  std::unique_ptr<StepGraph> step_graph_;  // null: steps are not captured
  // the engine's thread
  StepPhases times_;
  StepClock clock_;
  int64_t steps_done_ = 0;
  int64_t schedule_offset_ = 0;  // steps counted by the schedule but not by bias correction: the moments started later
  std::function<void()> before_update_;
  at::Tensor loss_sum_;  // of this step's micro batches, fp32 scalar on the device
  precision::LossScaling loss_scaling_;
  double label_weight_ = 0;  // of this step's micro batches: the fraction of their labels that count
  // fp32 on the device: [loss, grad norm, stop, label weight], with a loss scale also its report
  at::Tensor statistics_;
  at::Tensor gradient_factor_;  // fp32 scalar on the device
  at::Tensor nonfinite_;        // fp32 scalar on the device: 1 once a loss or norm was not finite
  std::optional<InFlight> in_flight_;
};

}  // namespace dslaunch::runtime
