// curriculum_learning, data_efficiency, progressive_layer_drop.
#include "config/key_rows.hpp"

namespace dslaunch::config {
namespace {

constexpr KeySpec kRows[] = {
    tuning_section("curriculum_learning"),
    not_yet("curriculum_learning.enabled", kBool, "false", "samples become harder over the steps").required(),
    tuning("curriculum_learning.curriculum_type", kString, "null", "what is hard"),
    tuning("curriculum_learning.min_difficulty", kInt, "null", "at the start").min(0),
    tuning("curriculum_learning.max_difficulty", kInt, "null", "at the end").min(0),
    tuning("curriculum_learning.schedule_type", kEnum, "null", "in between")
        .one_of("fixed_linear|fixed_root|fixed_discrete|custom"),
    tuning_section("curriculum_learning.schedule_config"),
    tuning("curriculum_learning.schedule_config.total_curriculum_step", kInt, "null", "length").min(1),
    tuning("curriculum_learning.schedule_config.difficulty_step", kInt, "null", "grain").min(1),
    tuning("curriculum_learning.schedule_config.root_degree", kInt, "null", "fixed_root").min(1),
    tuning("curriculum_learning.schedule_config.difficulty", kIntList, "null", "fixed_discrete"),
    tuning("curriculum_learning.schedule_config.max_step", kIntList, "null", "fixed_discrete"),

    tuning_section("data_efficiency"),
    not_yet("data_efficiency.enabled", kBool, "false", "data efficiency library"),
    tuning("data_efficiency.seed", kInt, "1234", "its seed").min(0),
    tuning_section("data_efficiency.data_sampling"),
    not_yet("data_efficiency.data_sampling.enabled", kBool, "false", "its sampler"),
    tuning("data_efficiency.data_sampling.num_epochs", kInt, "1000", "epochs").min(1),
    tuning("data_efficiency.data_sampling.num_workers", kInt, "0", "readers").min(0),
    tuning("data_efficiency.data_sampling.pin_memory", kBool, "false", "page-locked memory"),
    tuning_section("data_efficiency.data_sampling.curriculum_learning"),
    not_yet("data_efficiency.data_sampling.curriculum_learning.enabled", kBool, "false", "curriculum by metrics"),
    tuning("data_efficiency.data_sampling.curriculum_learning.data_cluster_path", kString, "null", "clusters"),
    named("data_efficiency.data_sampling.curriculum_learning.curriculum_metrics", "metrics"),
    tuning_section("data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*"),
    tuning("data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.index_to_sample_path", kString,
           "null", "index"),
    tuning("data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.index_to_metric_path", kString,
           "null", "index"),
    tuning("data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.difficulty_type", kEnum, "\"value\"",
           "measure")
        .one_of("value|percentile"),
    tuning("data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.clustering_type", kEnum,
           "\"schedule_based\"", "clusters")
        .one_of("schedule_based|single_cluster"),
    tuning("data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.min_difficulty", kInt, "null",
           "at the start"),
    tuning("data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.max_difficulty", kInt, "null",
           "at the end"),
    tuning("data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.schedule_type", kEnum, "null",
           "in between")
        .one_of("fixed_linear|fixed_root|fixed_discrete|custom"),
    tuning("data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.schedule_config", kAny, "null",
           "in between"),
    tuning_section("data_efficiency.data_sampling.dynamic_batching"),
    not_yet("data_efficiency.data_sampling.dynamic_batching.enabled", kBool, "false", "batches by token count"),
    tuning("data_efficiency.data_sampling.dynamic_batching.metrics_path", kString, "null", "lengths"),
    tuning("data_efficiency.data_sampling.dynamic_batching.lr_scaling_method", kEnum, "\"linear\"", "learning rate")
        .one_of("linear|sqrt|none"),
    tuning("data_efficiency.data_sampling.dynamic_batching.min_batch_size", kInt, "1", "bound").min(1),
    tuning("data_efficiency.data_sampling.dynamic_batching.max_batch_size", kInt, "null", "bound").min(1),
    tuning("data_efficiency.data_sampling.dynamic_batching.sequence_picking_order", kEnum, "\"dataloader\"", "order")
        .one_of("dataloader|random|seqlen"),
    tuning("data_efficiency.data_sampling.dynamic_batching.max_tokens", kInt, "null", "budget").min(1),
    tuning("data_efficiency.data_sampling.dynamic_batching.verbose", kBool, "false", "report"),
    tuning_section("data_efficiency.data_routing"),
    not_yet("data_efficiency.data_routing.enabled", kBool, "false", "routing of tokens"),
    tuning_section("data_efficiency.data_routing.random_ltd"),
    not_yet("data_efficiency.data_routing.random_ltd.enabled", kBool, "false", "random layer-wise token dropping"),
    tuning("data_efficiency.data_routing.random_ltd.total_layer_num", kInt, "null", "layers").min(0),
    tuning("data_efficiency.data_routing.random_ltd.random_ltd_layer_num", kInt, "null", "layers that drop").min(0),
    tuning("data_efficiency.data_routing.random_ltd.random_ltd_layer_id", kIntList, "null", "which").min(0),
    tuning("data_efficiency.data_routing.random_ltd.model_mask_name", kString, "null", "the mask's name"),
    tuning("data_efficiency.data_routing.random_ltd.model_type", kEnum, "null", "kind of model")
        .one_of("encoder|decoder"),
    tuning("data_efficiency.data_routing.random_ltd.hidden_state_order", kString, "null", "order of dims"),
    tuning("data_efficiency.data_routing.random_ltd.micro_batch_size", kInt, "null", "micro batch").min(1),
    tuning("data_efficiency.data_routing.random_ltd.global_batch_size", kInt, "null", "batch").min(1),
    tuning("data_efficiency.data_routing.random_ltd.sample_idx", kAny, "null", "set by DeepSpeed"),
    tuning("data_efficiency.data_routing.random_ltd.attention_mask", kAny, "null", "set by DeepSpeed"),
    tuning_section("data_efficiency.data_routing.random_ltd.layer_token_lr_schedule"),
    not_yet("data_efficiency.data_routing.random_ltd.layer_token_lr_schedule.enabled", kBool, "false",
            "learning rate by tokens"),
    tuning_section("data_efficiency.data_routing.random_ltd.random_ltd_schedule"),
    tuning("data_efficiency.data_routing.random_ltd.random_ltd_schedule.min_value", kInt, "null", "kept at the start"),
    tuning("data_efficiency.data_routing.random_ltd.random_ltd_schedule.max_value", kInt, "null", "kept at the end"),
    tuning("data_efficiency.data_routing.random_ltd.random_ltd_schedule.schedule_type", kEnum, "null", "in between")
        .one_of("fixed_linear"),
    tuning_section("data_efficiency.data_routing.random_ltd.random_ltd_schedule.schedule_config"),
    tuning("data_efficiency.data_routing.random_ltd.random_ltd_schedule.schedule_config.require_steps", kInt, "null",
           "length")
        .min(1),
    tuning("data_efficiency.data_routing.random_ltd.random_ltd_schedule.schedule_config.seq_per_step", kInt, "null",
           "grain")
        .min(1),

    tuning_section("progressive_layer_drop"),
    not_yet("progressive_layer_drop.enabled", kBool, "false", "skip layers at random").required(),
    tuning("progressive_layer_drop.theta", kFloat, "1.0", "kept in the end").min(0).max(1),
    tuning("progressive_layer_drop.gamma", kFloat, "0.001", "how fast").min(0),
};

}  // namespace

std::span<const KeySpec> data_efficiency_keys() {
  return kRows;
}

}  // namespace dslaunch::config
