// curriculum_learning and data_efficiency: which samples a step gets, and how much of them.
#include "config/key_rows.hpp"

namespace dslaunch::config {
namespace {

constexpr std::string_view kCustom = "custom: it is a function of Python; fixed_discrete lists any values";
constexpr std::string_view kSchedules = "fixed_linear|fixed_root|fixed_discrete|custom";

constexpr KeySpec kRows[] = {
    section("curriculum_learning"),
    rule_key("curriculum_learning.enabled", kBool, "false", "samples are cut to a length that grows with the steps")
        .required(),
    rule_key("curriculum_learning.curriculum_type", kEnum, "null", "what grows: seqlen, the length of samples")
        .one_of("seqlen"),
    rule_key("curriculum_learning.min_difficulty", kInt, "null", "length at the start").min(1),
    rule_key("curriculum_learning.max_difficulty", kInt, "null", "length at the end").min(1),
    rule_key("curriculum_learning.schedule_type", kEnum, "null", "how it grows")
        .one_of(kSchedules)
        .later("custom")
        .refuses(kCustom),
    section("curriculum_learning.schedule_config"),
    rule_key("curriculum_learning.schedule_config.total_curriculum_step", kInt, "null",
             "fixed_linear, fixed_root: steps until the end's difficulty")
        .min(1),
    rule_key("curriculum_learning.schedule_config.difficulty_step", kInt, "null",
             "fixed_linear, fixed_root: difficulties are multiples of it")
        .min(1),
    rule_key("curriculum_learning.schedule_config.root_degree", kInt, "null", "fixed_root: 2 is the square root")
        .min(1),
    rule_key("curriculum_learning.schedule_config.difficulty", kIntList, "null", "fixed_discrete: the difficulties"),
    rule_key("curriculum_learning.schedule_config.max_step", kIntList, "null",
             "fixed_discrete: the last step of each difficulty except the last")
        .min(1),

    section("data_efficiency"),
    rule_key("data_efficiency.enabled", kBool, "false", "switches on the sections below"),
    key<&JobConfig::data_efficiency, &DataEfficiency::seed>("data_efficiency.seed", "seed of the sampler's draws")
        .min(0),
    section("data_efficiency.data_sampling"),
    rule_key("data_efficiency.data_sampling.enabled", kBool, "false", "which samples a step gets"),
    key<&JobConfig::data_efficiency, &DataEfficiency::num_epochs>(
        "data_efficiency.data_sampling.num_epochs",
        "the most epochs of samples that are drawn; null: train.epochs and train.steps alone count")
        .min(1),
    section("data_efficiency.data_sampling.curriculum_learning"),
    rule_key("data_efficiency.data_sampling.curriculum_learning.enabled", kBool, "false",
             "samples are admitted by the difficulty of metrics"),
    named_section("data_efficiency.data_sampling.curriculum_learning.curriculum_metrics",
                  "metrics of samples: NAME: {index_to_sample_path, ...}"),
    section("data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*", "one metric"),
    rule_key("data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.index_to_sample_path", kString,
             "null", "samples by ascending metric (tools/analyze_data)"),
    rule_key("data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.index_to_metric_path", kString,
             "null", "the metric of each row of it; for difficulty_type value"),
    rule_key("data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.difficulty_type", kEnum,
             "\"value\"", "a difficulty is a value of the metric, or counts parts of the sorted samples")
        .one_of("value|percentile"),
    rule_key("data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.clustering_type", kEnum,
             "\"schedule_based\"", "samples join as the difficulty grows, or all of them at once")
        .one_of("schedule_based|single_cluster"),
    rule_key("data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.min_difficulty", kInt, "null",
             "at the start"),
    rule_key("data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.max_difficulty", kInt, "null",
             "at the end"),
    rule_key("data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.schedule_type", kEnum, "null",
             "in between")
        .one_of(kSchedules)
        .later("custom")
        .refuses(kCustom),
    section("data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.schedule_config"),
    rule_key(
        "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.schedule_config.total_curriculum_step",
        kInt, "null", "as in curriculum_learning")
        .min(1),
    rule_key("data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.schedule_config.difficulty_step",
             kInt, "null", "as in curriculum_learning")
        .min(1),
    rule_key("data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.schedule_config.root_degree", kInt,
             "null", "as in curriculum_learning")
        .min(1),
    rule_key("data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.schedule_config.difficulty",
             kIntList, "null", "as in curriculum_learning"),
    rule_key("data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.schedule_config.max_step",
             kIntList, "null", "as in curriculum_learning")
        .min(1),
    section("data_efficiency.data_sampling.dynamic_batching"),
    rule_key("data_efficiency.data_sampling.dynamic_batching.enabled", kBool, "false",
             "micro batches are filled up to a number of tokens"),
    rule_key("data_efficiency.data_sampling.dynamic_batching.metrics_path", kString, "null",
             "directory of tools/analyze_data with the metric seqlen, the lengths of samples"),
    rule_key("data_efficiency.data_sampling.dynamic_batching.max_tokens", kInt, "null",
             "tokens of a micro batch's samples together, at most")
        .min(1),
    rule_key("data_efficiency.data_sampling.dynamic_batching.min_batch_size", kInt, "1", "samples, at least").min(1),
    rule_key("data_efficiency.data_sampling.dynamic_batching.max_batch_size", kInt, "null", "samples, at most").min(1),
    rule_enum<kRateScalings>("data_efficiency.data_sampling.dynamic_batching.lr_scaling_method",
                             "how the learning rate follows the samples of a step")
        .unset("\"linear\""),
    rule_enum<kPickingOrders>("data_efficiency.data_sampling.dynamic_batching.sequence_picking_order",
                              "the order in which samples are packed: as in the data, random, by length")
        .unset("\"dataloader\""),
    rule_key("data_efficiency.data_sampling.dynamic_batching.verbose", kBool, "false", "a line for each batch"),
    section("data_efficiency.data_routing"),
    rule_key("data_efficiency.data_routing.enabled", kBool, "false", "which positions a unit gets"),
    section("data_efficiency.data_routing.random_ltd"),
    rule_key("data_efficiency.data_routing.random_ltd.enabled", kBool, "false",
             "units run on a random part of the positions, which grows with the steps"),
    rule_key("data_efficiency.data_routing.random_ltd.total_layer_num", kInt, "null", "blocks of the model").min(1),
    rule_key("data_efficiency.data_routing.random_ltd.random_ltd_layer_num", kInt, "null",
             "how many of them drop tokens: as many as random_ltd_layer_id has")
        .min(1),
    rule_key("data_efficiency.data_routing.random_ltd.random_ltd_layer_id", kIntList, "null",
             "which of them, counted from 0")
        .min(0),
    rule_key("data_efficiency.data_routing.random_ltd.model_mask_name", kString, "null",
             "argument of the blocks that is the attention mask; null: it is told by its shape"),
    rule_key("data_efficiency.data_routing.random_ltd.model_type", kEnum, "null", "kind of the model's attention")
        .one_of("encoder|decoder"),
    rule_key("data_efficiency.data_routing.random_ltd.hidden_state_order", kEnum, "null",
             "dims of the blocks' first argument")
        .one_of("batch_seq_dim|seq_batch_dim"),
    section("data_efficiency.data_routing.random_ltd.random_ltd_schedule"),
    rule_key("data_efficiency.data_routing.random_ltd.random_ltd_schedule.min_value", kInt, "null",
             "positions that are kept at the start")
        .min(1),
    rule_key("data_efficiency.data_routing.random_ltd.random_ltd_schedule.max_value", kInt, "null",
             "positions that are kept at the end")
        .min(1),
    rule_key("data_efficiency.data_routing.random_ltd.random_ltd_schedule.schedule_type", kEnum, "null", "in between")
        .one_of("fixed_linear"),
    section("data_efficiency.data_routing.random_ltd.random_ltd_schedule.schedule_config"),
    rule_key("data_efficiency.data_routing.random_ltd.random_ltd_schedule.schedule_config.require_steps", kInt, "null",
             "steps until the end's number")
        .min(1),
    rule_key("data_efficiency.data_routing.random_ltd.random_ltd_schedule.schedule_config.seq_per_step", kInt, "null",
             "numbers are multiples of it")
        .min(1),
};

}  // namespace

std::span<const KeySpec> data_efficiency_keys() {
  return kRows;
}

}  // namespace dslaunch::config
