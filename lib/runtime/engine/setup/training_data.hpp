// Builds loaders from the config's data section and the model's signature: which arrays feed which argument, which
// bounds apply to their integers, in which dtype and memory they arrive.
#pragma once
#include <memory>
#include <optional>

#include "comm/communicator.hpp"
#include "comm/mesh.hpp"
#include "config/job_config.hpp"
#include "runtime/data/batch_loader.hpp"
#include "runtime/engine/setup/micro_batch.hpp"
#include "runtime/model/interface/model_facts.hpp"

namespace dslaunch::runtime::engine::setup {

struct TrainingData {
  std::shared_ptr<const SampleSource> train, eval;  // null if the config does not name them
  ArraySelection train_arrays, eval_arrays;
  LoaderOptions loader;  // for train; eval differs only in its limits, and has whole samples
  LoaderOptions eval_loader;
  DataSchedule schedule;
};

// Loaders of the samples of `rank`'s data rank: the ranks of one model read the same batches. Rank 0 logs how arrays
// are used.
TrainingData open_training_data(const model::ModelFacts& model, const config::JobConfig& config, const comm::Mesh& mesh,
                                int rank, at::ScalarType compute_dtype, bool pin);

// Steps of the whole run. If steps and epochs are both given, the smaller limit applies; an endless pass has no epoch
// limit. Neither: one epoch. Without training data only the steps count; 0 when they are not given.
int64_t count_steps(const TrainingData& data, const config::JobConfig& config);

// For a run that only evaluates. Throws UserError(65) when there is no finite evaluation data.
void require_evaluation_data(const TrainingData& data, const config::Data& config);

// Of `epochs` passes over the training data. Throws UserError(65) for endless data.
int64_t steps_in_epochs(const TrainingData& data, const config::JobConfig& config, int64_t epochs);

// Pictures are transformed there.
MicroBatch on_device(Batch batch, at::Device device);

// Throws UserError(65) on every rank when ranks have opened different numbers of samples (a file that differs between
// hosts): some ranks would reach the end while others still wait for them. Collective.
void require_same_data(const TrainingData& data, comm::Communicator& world, at::Device device);

}  // namespace dslaunch::runtime::engine::setup
