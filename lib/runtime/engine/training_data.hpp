// From the config's data section and the model's signature to loaders: which arrays feed which argument, which bounds
// their integers must keep, in which type and memory they arrive.
#pragma once
#include <memory>
#include <optional>

#include "comm/communicator.hpp"
#include "config/job_config.hpp"
#include "runtime/data/batch_loader.hpp"
#include "runtime/engine/micro_batch.hpp"
#include "runtime/model/model_source.hpp"

namespace dslaunch::runtime {

struct TrainingData {
  std::shared_ptr<const SampleSource> train, eval;  // null where the config names none
  ArraySelection train_arrays, eval_arrays;
  LoaderOptions loader;  // for train; eval has the same but for its limits
  LoaderOptions eval_loader;
};

TrainingData open_training_data(const ModelSource& model, const config::JobConfig& config, int rank, int world_size,
                                at::ScalarType compute_dtype, bool pin);

// Of the whole run. Steps and epochs both given: whichever ends first, which an endless pass never does. Neither: one
// epoch. Without training data the steps alone count; 0 when they are not given.
int64_t count_steps(const TrainingData& data, const config::JobConfig& config);

// For a run that only evaluates. Throws UserError(65) when there is nothing that it could evaluate and come to an end.
void require_evaluation_data(const TrainingData& data, const config::Data& config);

MicroBatch on_device(Batch batch, at::Device device);

// Throws UserError(65) on every rank when they have opened different numbers of samples (a file that is not the same on
// every host): some would come to the end while the others wait for them. Collective.
void require_same_data(const TrainingData& data, comm::Communicator& world, at::Device device);

}  // namespace dslaunch::runtime
