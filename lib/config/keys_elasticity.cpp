// elasticity and autotuning.
#include "config/key_rows.hpp"

namespace dslaunch::config {
namespace {

constexpr KeySpec kRows[] = {
    tuning_section("elasticity"),
    not_yet("elasticity.enabled", kBool, "false", "choose the batch triple for a range of world sizes"),
    tuning("elasticity.max_train_batch_size", kInt, "2000", "largest batch").min(1),
    tuning("elasticity.micro_batch_sizes", kIntList, "[2, 4, 6]", "micro batches to choose from").min(1),
    tuning("elasticity.min_gpus", kInt, "1", "smallest world").min(1),
    tuning("elasticity.max_gpus", kInt, "10000", "largest world").min(1),
    tuning("elasticity.num_gpus_per_node", kInt, "1", "ranks of a node").min(1),
    tuning("elasticity.model_parallel_size", kInt, "1", "ranks of one model").min(1),
    tuning("elasticity.min_time", kInt, "0", "minutes").min(0),
    tuning("elasticity.prefer_larger_batch", kBool, "true", "what decides a tie"),
    tuning("elasticity.ignore_non_elastic_batch_info", kBool, "false", "allow the batch triple beside it"),
    tuning("elasticity.version", kFloat, "0.2", "which algorithm").min(0.1).max(0.2),

    tuning_section("autotuning"),
    not_yet("autotuning.enabled", kBool, "false", "try settings and keep the fastest"),
    tuning("autotuning.fast", kBool, "true", "only stage and micro batch"),
    tuning("autotuning.results_dir", kString, "\"autotuning_results\"", "where results go"),
    tuning("autotuning.exps_dir", kString, "\"autotuning_exps\"", "where experiments go"),
    tuning("autotuning.overwrite", kBool, "true", "repeat experiments that exist"),
    tuning("autotuning.start_profile_step", kInt, "3", "first measured step").min(0),
    tuning("autotuning.end_profile_step", kInt, "5", "last measured step").min(0),
    tuning("autotuning.metric", kEnum, "\"throughput\"", "what is compared").one_of("latency|throughput|flops"),
    tuning("autotuning.metric_path", kString, "null", "result file of an experiment"),
    tuning("autotuning.tuner_type", kEnum, "\"gridsearch\"", "how the space is searched")
        .one_of("gridsearch|random|model_based"),
    tuning("autotuning.tuner_early_stopping", kInt, "5", "experiments without progress").min(0),
    tuning("autotuning.tuner_num_trials", kInt, "50", "maximum experiments").min(1),
    tuning("autotuning.arg_mappings", kAny, "null", "flags of the script to set"),
    tuning("autotuning.max_train_batch_size", kInt, "null", "largest batch").min(1),
    tuning("autotuning.min_train_batch_size", kInt, "1", "smallest batch").min(1),
    tuning("autotuning.max_train_micro_batch_size_per_gpu", kInt, "1024", "largest micro batch").min(1),
    tuning("autotuning.min_train_micro_batch_size_per_gpu", kInt, "1", "smallest micro batch").min(1),
    tuning("autotuning.num_tuning_micro_batch_sizes", kInt, "3", "micro batches tried").min(1),
    tuning("autotuning.mp_size", kInt, "1", "ranks of one model").min(1),
    tuning_section("autotuning.model_info"),
    tuning("autotuning.model_info.profile", kBool, "false", "measure the model"),
    tuning("autotuning.model_info.num_params", kInt, "null", "its parameters").min(0),
    tuning("autotuning.model_info.hidden_size", kInt, "null", "its width").min(0),
    tuning("autotuning.model_info.num_layers", kInt, "null", "its depth").min(0),
    tuning("autotuning.model_info_path", kString, "null", "where they stand"),
};

}  // namespace

std::span<const KeySpec> elasticity_keys() {
  return kRows;
}

}  // namespace dslaunch::config
