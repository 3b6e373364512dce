// From the config's data section and the model's signature to loaders: which arrays feed which argument, which bounds
// their integers must keep, in which type and memory they arrive.
#pragma once
#include <memory>
#include <optional>

#include "config/job_config.hpp"
#include "runtime/data/batch_loader.hpp"
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

}  // namespace dslaunch::runtime
