// For --verify: the training run repeated in rank 0 as a single process would execute it, without sharding and without
// other ranks. It computes all data ranks' micro batches one after the other, each with the random numbers and the
// buffers (BatchNorm's statistics) of the rank that computes it in the run, so that results that depend on how a batch
// is split agree. Of a pipeline it computes the whole model, with the random numbers of each stage in its layers. One
// thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "config/job_config.hpp"
#include "runtime/data/batch_loader.hpp"
#include "runtime/device/device.hpp"
#include "runtime/engine/setup/training_data.hpp"
#include "runtime/engine/step/engine.hpp"
#include "runtime/engine/verify/gradient_magnitudes.hpp"
#include "runtime/engine/verify/stage_random_states.hpp"
#include "runtime/engine/verify/verification_bounds.hpp"
#include "runtime/model/interface/model.hpp"

namespace dslaunch::runtime::engine::verify {

// The run to replicate; the references must outlive the replica.
struct ReplicatedRun {
  const model::Model& model;  // of this rank
  const device::Device& device;
  std::string model_path;
  const config::JobConfig& config;
  step::EngineOptions engine;
  const setup::TrainingData& data;
  LoaderStart start;
  int num_data_ranks = 1;
  // Of each rank of the world, as save_random_state() gives them; of tensor ranks, which have the same, the first.
  std::vector<std::string> random_states;
};

class Replica : private step::EngineObserver {
 public:
  // `single_rank_group`: a communicator of one rank; must outlive the replica.
  Replica(const ReplicatedRun& run, comm::Communicator& single_rank_group, const GradientBound& bound);

  // The next step over the whole global batch. Leaves this process's random number generators unchanged.
  step::StepResult step();

  // Whole parameters and moments, as views. `lower` and `upper`, in the order of `values`, bound the result of the last
  // step for any gradient error within the bound; before the first step they are empty.
  struct State {
    std::vector<step::OwnedState> values, lower, upper;
  };
  State state();
  // Call after writing the run's values to those of state(): the replica then has the state of `run`.
  void load_state(const step::Engine& run) { engine_->load_state_from(run); }

  // For a frozen parameter that no rank of the run holds whole.
  void set_frozen(int parameter, const at::Tensor& value) { model_->tensors.set_frozen_value(parameter, value); }
  // A buffer or frozen parameter of the run, which a checkpoint may have set to another value than that in the file.
  void set_held(const std::string& name, const at::Tensor& value);
  at::Tensor held(const std::string& name) const;

  const ParameterTable& table() const { return model_->facts.table; }
  int parameter_of(const std::string& name) const { return parameter_of_.at(name); }
  std::vector<std::pair<std::string, at::Tensor>> buffers() const { return model_->tensors.buffers(); }

  UnitParameters& unit_parameters() { return engine_->unit_parameters(); }
  // Whether the last step drew random numbers.
  bool draws_random_numbers() const { return draws_random_numbers_; }

 private:
  // State that each rank has for itself.
  struct RankState {
    std::unique_ptr<BatchLoader> loader;
    std::vector<at::Tensor> random;  // by stage
    std::vector<at::Tensor> buffers;
  };
  void open_ranks(const ReplicatedRun& run);
  setup::MicroBatch next_micro_batch();
  void enter(RankState& rank);
  void leave(RankState& rank);
  void before_update(std::span<const SpanState> states, const step::ApplyUpdate& update) override;
  at::Tensor gradient_errors(const SpanState& state, double model_size) const;
  at::Tensor magnitudes(const SpanState& state) const;

  // fixed after construction
  const at::Device device_;
  const GradientBound bound_;
  config::JobConfig config_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<step::Engine> engine_;
  std::unique_ptr<GradientMagnitudes> magnitudes_;
  std::map<std::string, int> parameter_of_;  // by name
  // changes with every step
  StageRandomStates random_;
  std::vector<RankState> ranks_;
  size_t micro_batches_ = 0;  // of the current step, that were returned so far
  std::vector<SpanState> lower_, upper_;
  int64_t steps_done_ = 0;
  bool draws_random_numbers_ = false;
};

// Bytes of device memory that a replica of a model with these parameters needs in addition to the run, without buffers
// and activations.
int64_t replica_bytes(const ParameterTable& table, const precision::ModelDtypes& dtypes, int64_t num_moments);

}  // namespace dslaunch::runtime::engine::verify
