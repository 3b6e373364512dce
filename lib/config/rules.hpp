// Rules that involve several keys. Errors and notes are added to the settings.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/job_config.hpp"
#include "config/model_defaults.hpp"
#include "config/settings.hpp"

namespace dslaunch::config {

// All rules below. Requires a complete() table. Resolves values that depend on other keys, adds errors for
// contradictions. `model`: what the model file asks for.
void apply_rules(Settings& settings, const ModelDefaults& model);

// Derives one precision and one loss scale from fp16, bf16, amp and torch_autocast; adds errors for sections that
// contradict each other and values that give no valid loss scale.
void apply_precision_rules(Settings& settings);
// Which parameters each optimizer and schedule accepts, and the defaults that depend on the type.
void apply_optimizer_rules(Settings& settings);
void apply_scheduler_rules(Settings& settings);
void apply_monitoring_rules(Settings& settings);
// What offload_optimizer and offload_param require of the stage, the optimizer and the precision. After the rules of
// the precision.
void apply_offload_rules(Settings& settings);
// The values of pipeline.partition, and what stages exclude.
void apply_pipeline_rules(Settings& settings);
// One size from all names for it, and what more than one tensor rank excludes.
void apply_tensor_parallel_rules(Settings& settings);

// The entries of tensor_parallel.policy, injection_policy and partition_config, which say how products are split.
void check_split_rules(Settings& settings);

// The prompts of train.samples, and what it needs and excludes.
void apply_sample_rules(Settings& settings);
// The values that evaluations have by train.samples. After its rules.
struct SampleValues {
  bool exact_match = false;  // some prompt may have a reference
  bool of_command = false;   // values of any names
};
SampleValues sample_values(const Settings& settings);

// The entries of train.metrics; which of their values train.early_stopping and checkpoint.keep_best may name, and which
// of these are better.
void apply_metric_rules(Settings& settings);

// The epochs that data_sampling names; empty: none, or it chooses no samples.
std::optional<int64_t> sampler_epochs(const Settings& settings);
// What the curricula and dynamic batching need and exclude.
void apply_data_efficiency_rules(Settings& settings);

// Whether that optimizer or schedule has a parameter `name`; true for types that are not implemented yet.
bool optimizer_accepts(std::string_view type, std::string_view name);
bool scheduler_accepts(std::string_view type, std::string_view name);
// What of whole parameters the step of that optimizer needs ("whole matrices"); empty: it is element-wise.
std::string_view whole_parameters_of(std::string_view type);

// Solves the batch triple for the data ranks of a world in which each model takes several ranks; adds an error if it
// has no solution. Returns the explanation in numbers, empty without a solution.
std::string apply_batch(Settings& settings, int64_t data_ranks, int64_t ranks_per_model);

// Whether the weights that training updates are fp32: always, except for levels of amp without master weights.
bool keeps_fp32_master(const Settings& settings);

// Fills precision, loss_scale, autocast, keep_batch_norm and fp32_master. The ZeRO stage must be set already.
void build_precision(const Settings& settings, JobConfig& out);

// Fills the members of offloading whose keys have several forms or special values.
void build_offload(const Settings& settings, Zero& out);

// Fills the members of the pipeline whose key has several forms.
void build_pipeline(const Settings& settings, Pipeline& out);

// Fills the members of tensor_parallel whose keys have several forms.
void build_tensor_parallel(const Settings& settings, TensorParallel& out);
std::vector<TensorSplitRule> split_rules(const Settings& settings);

// Fills the metrics, whose key has several forms.
void build_metrics(const Settings& settings, Train& out);

// Fills the prompts of samples, whose key has several forms.
void build_samples(const Settings& settings, std::optional<Samples>& out);

// Fills what the switches of data_efficiency and curriculum_learning turn on.
void build_data_efficiency(const Settings& settings, DataEfficiency& out);

// The typed sections from a table to which the rules were applied and that has no issues.
JobConfig build_job_config(const Settings& settings);

}  // namespace dslaunch::config
