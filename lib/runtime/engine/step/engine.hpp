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

#include "comm/groups.hpp"
#include "config/job_config.hpp"
#include "runtime/engine/setup/micro_batch.hpp"
#include "runtime/engine/step/captured_pass.hpp"
#include "runtime/engine/step/engine_observer.hpp"
#include "runtime/engine/step/evaluation.hpp"
#include "runtime/engine/step/forward_loss.hpp"
#include "runtime/engine/step/gradient_pass.hpp"
#include "runtime/engine/step/metrics.hpp"
#include "runtime/engine/step/rate_schedule.hpp"
#include "runtime/engine/step/shard_update.hpp"
#include "runtime/engine/step/stage_link.hpp"
#include "runtime/engine/step/state_ownership.hpp"
#include "runtime/engine/step/step_result.hpp"
#include "runtime/engine/step/step_verdict.hpp"
#include "runtime/engine/step/tied_parameters.hpp"
#include "runtime/model/interface/model.hpp"
#include "runtime/optim/flat_optimizer.hpp"
#include "runtime/precision/loss_scaling.hpp"
#include "runtime/precision/precision_choice.hpp"
#include "runtime/sharding/flat_parameters.hpp"
#include "runtime/state/local_slice_layout.hpp"
#include "runtime/telemetry/step_phases.hpp"

namespace dslaunch::runtime::engine::step {

struct EngineOptions {
  at::Device device = at::kCPU;
  precision::ModelDtypes dtypes;  // in which parameters are computed
  int64_t total_steps = 0;        // of the whole run, for the schedules that need it
  // A second communicator over the data group's ranks, for stage 3's all-gathers; null: they use the data group.
  comm::Communicator* gather_group = nullptr;
  comm::Communicator* secondary_group = nullptr;         // see ShardingOptions
  std::function<void(const std::string& text)> barrier;  // see ShardingOptions
  // Of a stage of a pipeline: told what part of a step begins ("forward of micro batch 3"), for hang reports. May be
  // empty.
  std::function<void(const std::string& activity)> activity;
  PipelineClock* pipeline_clock = nullptr;  // may be null; it observes `phases`
  StepPhases phases;                        // notified of the current phase of each step
  // Of a step, counted from 1: the factor of its learning rate beside what the scheduler says. Empty: 1.
  std::function<double(int64_t step)> rate_scale = {};
  int64_t labels_of_micro_batch = 0;  // see GradientPass::Options
  bool batch_shapes_vary = false;     // from step to step; see CapturedPass::Options
  bool for_evaluation = false;        // no training steps: moments are not allocated
  int ranks_of_host = 1;              // of this job
  int replicated_ranks = 1;  // number of ranks whose micro batches this engine computes by itself, slice by slice
  // For tests: what is put around each queue that reads and writes state in files.
  std::function<std::unique_ptr<file_io::BlockQueue>(std::unique_ptr<file_io::BlockQueue>)> wrap_file_queue;
};

// A part of a parameter's state that this rank owns: what a checkpoint stores.
struct OwnedState {
  std::string parameter;
  std::string state;  // "master" or a moment of the optimizer
  int64_t begin = 0;  // first element within the parameter, or within the slice of it
  int64_t count = 0;
  // The run of local elements that has the part: 1-D, on the engine's device or, offloaded, in host memory; undefined:
  // it rests in a file. Without a slice the run is the part; parts of several ranges have the same run.
  at::Tensor values;
  bool is_offloaded = false;
  struct InFile {
    std::shared_ptr<StoredArrays> arrays;
    size_t array = 0;
    int64_t begin = 0, count = 0;  // of the run, within the array
  };
  InFile in_file = {};                          // where `values` is undefined
  std::optional<Slice> slice = {};              // of the whole parameter; empty: all of it
  std::shared_ptr<const RangePart> range = {};  // where the part is in the run; null: the part is the run

  // Elements [first, first + numel) of the part: a view of `values` where they are back to back there, else a copy.
  at::Tensor read(int64_t first, int64_t numel) const;
  at::Tensor read_all() const { return read(0, count); }
};

// What a checkpoint says of the steps before it.
struct RestoredCounters {
  int64_t steps_done = 0;
  std::map<std::string, double> scalars = {};  // may lack entries (a checkpoint of an older version)
  bool fresh_moments = false;                  // bias correction starts from zero while the schedule continues
  std::vector<int64_t> moment_starts = {};     // by parameter (optim/moment_starts.hpp); empty: all 0
};

// A part of a frozen parameter that this rank holds at stage 3.
struct FrozenPart {
  int parameter = 0;
  int64_t begin = 0, count = 0;  // elements of the local tensor
};

class Engine {
 public:
  // Moves the model to the device. The model and the communicators must outlive the engine. `read`: reads initial
  // elements of a parameter (also for models exported without values).
  Engine(model::Model& model, const config::JobConfig& config, EngineOptions options, const comm::Groups& groups,
         const FlatParameters::ReadElements& read);

  // One optimizer step over `accumulation` micro batches from `next`. On a device it returns the previous step's result
  // (empty at the first call): metrics are read one step late so that the host never waits for the device.
  std::optional<StepResult> train_step(const std::function<setup::MicroBatch()>& next, bool stop_requested);
  // The result that is still in flight, if any.
  std::optional<StepResult> finish() { return verdict_->finish(); }
  // The mean loss over the batches of all data ranks (evaluation.hpp) and, unless it was stopped, the metrics; null:
  // none. Training continues as if it had not happened.
  EvaluationResult evaluate(const std::function<std::optional<EvaluationBatch>()>& next,
                            const std::function<bool()>& stop_requested, Metrics* metrics = nullptr);
  // For a diagnosis, after a step whose loss or gradient was not finite (such a step leaves the parameters unchanged):
  // computes the loss of a micro batch again, with backward if `with_gradients`. The model gets its parameters from
  // `parameters`, which forwards to unit_parameters(). Collective at stage 3, and among the stages of a pipeline, of
  // which only the last has a loss. Training cannot continue afterwards.
  at::Tensor recompute_loss(const setup::MicroBatch& batch, UnitParameters& parameters, bool with_gradients);

  int64_t steps_done() const { return steps_done_; }
  // The state that this rank owns (StateOwnership); views or places in files, valid until the next step. Each element
  // has one owner.
  std::vector<OwnedState> owned_state();
  // The same for other values of this engine's spans.
  std::vector<OwnedState> named_state(std::span<const SpanState> states) const;
  // The parts of sharded frozen parameters that this rank owns, and which ones are sharded; the others are whole on
  // every rank.
  std::vector<FrozenPart> owned_frozen() const;
  bool shards_frozen(int parameter) const { return parameters_->shards_frozen(parameter); }
  const StateOwnership& ownership() const { return ownership_; }
  // Whether another stage of the pipeline holds this parameter and saves it.
  bool is_saved_elsewhere(int parameter) const { return tied_.is_counted_elsewhere(parameter); }
  // The largest number of moments in any optimizer group.
  int64_t num_moments() const;
  // Call after writing masters and moments, in memory, through owned_state(): recomputes the parameters from the
  // masters and takes counters and loss scale from another engine.
  void load_state_from(const Engine& other);
  // The parameters and gradients of the model's units; use outside a step, and not during an evaluation. Collective.
  UnitParameters& unit_parameters();
  // The same, for forwards that one rank does (FlatParameters::set_generating), until end_generation().
  UnitParameters& begin_generation();
  void end_generation() { parameters_->set_generating(false); }
  // Whether parameters are whole only while their unit is acquired; else for as long as no step begins.
  bool gathers_units() const { return parameters_->gathers_units(); }
  // Restores parameters, moments, counters and the loss scale. `read` fills elements of this rank's part of a state, or
  // returns false for a moment that is to start as in a new run. `barrier`: see FlatParameters::load().
  using ReadState = std::function<bool(int parameter, const std::string& state, int64_t begin, at::Tensor out)>;
  void restore(const RestoredCounters& counters, const ReadState& read, const std::function<void()>& barrier);
  // The scalar state of a checkpoint; valid after finish().
  std::map<std::string, double> scalars() const;
  // Whether steps are replayed from a CUDA graph ("graph_harvesting"); the failure says why not.
  const Result<>& captured() const { return captured_pass_ ? captured_pass_->captured() : not_captured_; }
  // Whether updates of offloaded state now begin in the backward of their step (offload/host_updates.hpp): unless
  // something that comes after it decides about them, or an observer needs the state before them.
  bool updates_early() const;
  // From the next step on; must outlive the last step.
  void observe(EngineObserver& observer) { observers_.push_back(&observer); }
  // Time since the last step (an evaluation, a save) is excluded from the next step's time.
  void restart_clock() { verdict_->restart_clock(); }

 private:
  bool owns_state() const;
  std::function<void(int64_t)> reserve_together(std::function<void(int64_t)> reserve) const;
  void warn_of_slow_storage() const;
  int num_update_threads() const;
  std::shared_ptr<MemoryTransfers> staged_copies(memory_plan::Tier tier) const;
  int64_t count_update_numel(const ShardingOptions& sharding, int64_t num_moments) const;
  std::shared_ptr<GradientStore> store_state(std::span<SpanState> state, int64_t num_moments);
  std::shared_ptr<ParameterStore> store_parameters(std::span<const StoredSlice> slices);
  void allocate_moments(const ShardingOptions::Offload& offload);
  std::function<void()> check_peers() const;
  void finish_updates();
  void set_counters(int64_t steps_done, std::map<std::string, double> scalars, bool fresh_moments);
  void move_model_to_device(const FlatParameters::ReadElements& read);
  std::unique_ptr<GradientPass> make_pass();
  std::unique_ptr<CapturedPass> make_captured_pass();
  std::unique_ptr<StepVerdict> make_verdict();
  std::unique_ptr<offload::HostUpdates> make_host_updates();
  std::vector<pipeline::Action> plan_actions() const;
  std::optional<StepResult> choose_averaging();
  void compute_gradients(const std::function<setup::MicroBatch()>& next);
  void expect_early_updates(const at::Tensor& loss) const;

  // fixed after construction
  model::Model& model_;
  const config::JobConfig& config_;
  EngineOptions options_;
  const comm::Groups groups_;
  ForwardLoss forward_loss_;
  const optim::OptimizerGroups optimizer_groups_;
  StepStreams streams_;
  const TiedParameters tied_;
  const StateOwnership ownership_;
  std::unique_ptr<StageLink> link_;                         // null: this rank has the whole model
  std::shared_ptr<offload::StateFile> state_file_;          // null: no optimizer state is in files
  std::shared_ptr<offload::ParameterFile> parameter_file_;  // null: no parameters are in files
  int64_t update_numel_ = 0;  // that an update on the host works on at once, at most; 0: there is none
  std::unique_ptr<FlatParameters> parameters_;
  std::unique_ptr<optim::FlatOptimizer> optimizer_;
  std::unique_ptr<GradientPass> pass_;
  std::unique_ptr<IssueClock> issue_clock_;      // null: whether capture pays is not measured
  std::unique_ptr<CapturedPass> captured_pass_;  // null: steps are not captured
  Result<> not_captured_ = Failure{"graph_harvesting is off"};
  std::unique_ptr<StepVerdict> verdict_;
  std::unique_ptr<offload::HostUpdates> host_updates_;  // null: nothing is offloaded
  std::unique_ptr<ShardUpdate> update_;
  // the engine's thread
  StepPhases times_;
  std::vector<EngineObserver*> observers_;
  RateSchedule rates_;
  precision::LossScaling loss_scaling_;
  int64_t steps_done_ = 0;
  bool averages_gradients_ = true;  // in the step that is computed; else each rank's are its own
  bool reported_exchange_ = false;  // that there are steps without averages
};

}  // namespace dslaunch::runtime::engine::step
