// The training run once more as one process would make it, in rank 0, for --verify: nothing sharded, no other rank; all
// ranks' micro batches one after the other, each with the random numbers and the buffers (BatchNorm's statistics) of
// the rank that has it in the run, so that what depends on the split of a batch is split alike. One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "config/job_config.hpp"
#include "runtime/data/batch_loader.hpp"
#include "runtime/engine/engine.hpp"
#include "runtime/engine/gradient_magnitudes.hpp"
#include "runtime/engine/training_data.hpp"
#include "runtime/engine/verification_bounds.hpp"
#include "runtime/model/model_source.hpp"

namespace dslaunch::runtime {

// The run that is replicated; the references must outlive the replica.
struct ReplicatedRun {
  const ModelSource& model;  // for its buffers as they are now
  std::string model_path;
  const config::JobConfig& config;
  EngineOptions engine;
  const TrainingData& data;
  DataPosition position;
  int num_ranks = 1;
  std::vector<std::string> random_states;  // of each rank, as save_random_state() gives them
};

class Replica {
 public:
  // `alone`: a group of one; must outlive the replica.
  Replica(const ReplicatedRun& run, comm::Communicator& alone, const GradientBound& bound);

  // The next step over the whole global batch. This process's random numbers are left as they were.
  StepResult step();

  // Whole parameters and moments, views. What an error of the gradient within the bound would have made of them in the
  // last step lies between `lower` and `upper`, in the same order as `values`; before the first step these are empty.
  struct State {
    std::vector<OwnedState> values, lower, upper;
  };
  State state();
  // After the run's values were written to those of state(): the replica stands where `run` does.
  void take_over(const Engine& run) { engine_->load_state_from(run.steps_done(), run.scalars()); }

  // Of a frozen parameter that no rank of the run holds whole.
  void set_frozen(int parameter, const at::Tensor& value) { model_->set_frozen_value(parameter, value); }

  UnitParameters& unit_parameters() { return engine_->unit_parameters(); }
  // Did the last step draw random numbers?
  bool draws_random_numbers() const { return draws_random_numbers_; }

 private:
  // What one rank has for itself.
  struct RankState {
    std::unique_ptr<BatchLoader> loader;
    at::Tensor random;
    std::vector<at::Tensor> buffers;
  };
  void take_frozen(const ModelSource& of_run);
  void open_ranks(const ReplicatedRun& run);
  MicroBatch next_micro_batch();
  void enter(RankState& rank);
  void leave(RankState& rank);
  void bound_update(const std::vector<optim::ShardTensors>& shards, const UpdateShards& update);
  at::Tensor gradient_errors(const optim::ShardTensors& shard, double model_size) const;
  at::Tensor magnitudes(const optim::ShardTensors& shard) const;

  // fixed after construction
  const at::Device device_;
  const GradientBound bound_;
  config::JobConfig config_;
  std::unique_ptr<ModelSource> model_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<GradientMagnitudes> magnitudes_;
  std::map<std::string, int> parameter_of_;  // by name
  // changes with every step
  std::vector<RankState> ranks_;
  size_t micro_batches_ = 0;  // of the step at hand that were given out
  std::vector<optim::ShardTensors> lower_, upper_;
  int64_t steps_done_ = 0;
  bool draws_random_numbers_ = false;
};

// Bytes of device memory that a replica of `model` takes beside the run, without activations.
int64_t replica_bytes(const ModelSource& model, const precision::ModelDtypes& dtypes, int64_t num_moments);

}  // namespace dslaunch::runtime
