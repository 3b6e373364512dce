// compression_training: six techniques with the same structure, and layer_reduction.
#include "config/key_rows.hpp"

namespace dslaunch::config {
namespace {

constexpr KeySpec kRows[] = {
    section("compression_training"),

    tuning_section("compression_training.weight_quantization"),
    tuning_section("compression_training.weight_quantization.shared_parameters"),
    not_yet("compression_training.weight_quantization.shared_parameters.enabled", kBool, "false",
            "quantize weights in training"),
    tuning("compression_training.weight_quantization.shared_parameters.quantizer_kernel", kBool, "false",
           "a kernel of DeepSpeed"),
    tuning("compression_training.weight_quantization.shared_parameters.schedule_offset", kInt, "0", "first step")
        .min(0),
    tuning("compression_training.weight_quantization.shared_parameters.quantize_groups", kInt, "1", "groups").min(1),
    tuning("compression_training.weight_quantization.shared_parameters.quantize_verbose", kBool, "false", "report"),
    tuning("compression_training.weight_quantization.shared_parameters.quantization_type", kEnum, "\"symmetric\"",
           "range")
        .one_of("symmetric|asymmetric"),
    tuning("compression_training.weight_quantization.shared_parameters.rounding", kEnum, "\"nearest\"", "rounding")
        .one_of("nearest|stochastic"),
    tuning("compression_training.weight_quantization.shared_parameters.quantize_weight_in_forward", kBool, "false",
           "where"),
    tuning("compression_training.weight_quantization.shared_parameters.fp16_mixed_quantize", kSection, "null",
           "mixing"),
    tuning("compression_training.weight_quantization.shared_parameters.fp16_mixed_quantize.enabled", kBool, "false",
           "mix with fp16"),
    tuning("compression_training.weight_quantization.shared_parameters.fp16_mixed_quantize.quantize_change_ratio",
           kFloat, "0.001", "how fast")
        .min(0),
    named("compression_training.weight_quantization.different_groups", "groups of modules"),
    tuning_section("compression_training.weight_quantization.different_groups.*"),
    tuning_section("compression_training.weight_quantization.different_groups.*.params"),
    tuning("compression_training.weight_quantization.different_groups.*.params.start_bits", kInt, "null",
           "bits at the start")
        .min(1),
    tuning("compression_training.weight_quantization.different_groups.*.params.target_bits", kInt, "null",
           "bits at the end")
        .min(1),
    tuning("compression_training.weight_quantization.different_groups.*.params.quantization_period", kInt, "1",
           "steps of one bit")
        .min(1),
    tuning("compression_training.weight_quantization.different_groups.*.modules", kStringList, "\"*\"",
           "which modules"),
    tuning("compression_training.weight_quantization.different_groups.*.related_modules", kAny, "null",
           "modules that follow them"),

    tuning_section("compression_training.activation_quantization"),
    tuning_section("compression_training.activation_quantization.shared_parameters"),
    not_yet("compression_training.activation_quantization.shared_parameters.enabled", kBool, "false",
            "quantize activations in training"),
    tuning("compression_training.activation_quantization.shared_parameters.quantization_type", kEnum, "\"symmetric\"",
           "range")
        .one_of("symmetric|asymmetric"),
    tuning("compression_training.activation_quantization.shared_parameters.range_calibration", kEnum, "\"dynamic\"",
           "range")
        .one_of("dynamic|static"),
    tuning("compression_training.activation_quantization.shared_parameters.schedule_offset", kInt, "1000", "first step")
        .min(0),
    named("compression_training.activation_quantization.different_groups", "groups of modules"),
    tuning_section("compression_training.activation_quantization.different_groups.*"),
    tuning_section("compression_training.activation_quantization.different_groups.*.params"),
    tuning("compression_training.activation_quantization.different_groups.*.params.bits", kInt, "null", "bits").min(1),
    tuning("compression_training.activation_quantization.different_groups.*.modules", kStringList, "\"*\"",
           "which modules"),
    tuning("compression_training.activation_quantization.different_groups.*.related_modules", kAny, "null",
           "modules that follow them"),

    tuning_section("compression_training.sparse_pruning"),
    tuning_section("compression_training.sparse_pruning.shared_parameters"),
    not_yet("compression_training.sparse_pruning.shared_parameters.enabled", kBool, "false", "prune single weights"),
    tuning("compression_training.sparse_pruning.shared_parameters.method", kEnum, "\"l1\"", "criterion")
        .one_of("l1|topk|snip_momentum"),
    tuning("compression_training.sparse_pruning.shared_parameters.schedule_offset", kInt, "1000", "first step").min(0),
    tuning("compression_training.sparse_pruning.shared_parameters.block_pattern", kString, "\"4x1\"", "snip_momentum"),
    tuning("compression_training.sparse_pruning.shared_parameters.dense_ratio", kFloat, "0.1", "snip_momentum")
        .above(0)
        .below(1),
    tuning("compression_training.sparse_pruning.shared_parameters.schedule_offset_stride", kInt, "1", "snip_momentum")
        .min(1),
    tuning("compression_training.sparse_pruning.shared_parameters.schedule_offset_end", kInt, "null", "last step")
        .min(0),
    tuning("compression_training.sparse_pruning.shared_parameters.excluded_modules", kStringList, "[]", "left out"),
    named("compression_training.sparse_pruning.different_groups", "groups of modules"),
    tuning_section("compression_training.sparse_pruning.different_groups.*"),
    tuning_section("compression_training.sparse_pruning.different_groups.*.params"),
    tuning("compression_training.sparse_pruning.different_groups.*.params.dense_ratio", kFloat, "null",
           "fraction that stays")
        .min(0)
        .max(1),
    tuning("compression_training.sparse_pruning.different_groups.*.modules", kStringList, "\"*\"", "which modules"),
    tuning("compression_training.sparse_pruning.different_groups.*.related_modules", kAny, "null",
           "modules that follow them"),

    tuning_section("compression_training.row_pruning"),
    tuning_section("compression_training.row_pruning.shared_parameters"),
    not_yet("compression_training.row_pruning.shared_parameters.enabled", kBool, "false", "prune rows"),
    tuning("compression_training.row_pruning.shared_parameters.method", kEnum, "\"l1\"", "criterion").one_of("l1|topk"),
    tuning("compression_training.row_pruning.shared_parameters.schedule_offset", kInt, "1000", "first step").min(0),
    named("compression_training.row_pruning.different_groups", "groups of modules"),
    tuning_section("compression_training.row_pruning.different_groups.*"),
    tuning_section("compression_training.row_pruning.different_groups.*.params"),
    tuning("compression_training.row_pruning.different_groups.*.params.dense_ratio", kFloat, "null",
           "fraction that stays")
        .min(0)
        .max(1),
    tuning("compression_training.row_pruning.different_groups.*.modules", kStringList, "\"*\"", "which modules"),
    tuning("compression_training.row_pruning.different_groups.*.related_modules", kAny, "null",
           "modules that follow them"),

    tuning_section("compression_training.channel_pruning"),
    tuning_section("compression_training.channel_pruning.shared_parameters"),
    not_yet("compression_training.channel_pruning.shared_parameters.enabled", kBool, "false", "prune channels"),
    tuning("compression_training.channel_pruning.shared_parameters.method", kEnum, "\"l1\"", "criterion")
        .one_of("l1|topk"),
    tuning("compression_training.channel_pruning.shared_parameters.schedule_offset", kInt, "1000", "first step").min(0),
    named("compression_training.channel_pruning.different_groups", "groups of modules"),
    tuning_section("compression_training.channel_pruning.different_groups.*"),
    tuning_section("compression_training.channel_pruning.different_groups.*.params"),
    tuning("compression_training.channel_pruning.different_groups.*.params.dense_ratio", kFloat, "null",
           "fraction that stays")
        .min(0)
        .max(1),
    tuning("compression_training.channel_pruning.different_groups.*.modules", kStringList, "\"*\"", "which modules"),
    tuning("compression_training.channel_pruning.different_groups.*.related_modules", kAny, "null",
           "modules that follow them"),

    tuning_section("compression_training.head_pruning"),
    tuning_section("compression_training.head_pruning.shared_parameters"),
    not_yet("compression_training.head_pruning.shared_parameters.enabled", kBool, "false", "prune attention heads"),
    tuning("compression_training.head_pruning.shared_parameters.method", kEnum, "\"topk\"", "criterion")
        .one_of("l1|topk"),
    tuning("compression_training.head_pruning.shared_parameters.schedule_offset", kInt, "1000", "first step").min(0),
    tuning("compression_training.head_pruning.shared_parameters.num_heads", kInt, "null", "heads").min(1),
    named("compression_training.head_pruning.different_groups", "groups of modules"),
    tuning_section("compression_training.head_pruning.different_groups.*"),
    tuning_section("compression_training.head_pruning.different_groups.*.params"),
    tuning("compression_training.head_pruning.different_groups.*.params.dense_ratio", kFloat, "null",
           "fraction that stays")
        .min(0)
        .max(1),
    tuning("compression_training.head_pruning.different_groups.*.modules", kStringList, "\"*\"", "which modules"),
    tuning("compression_training.head_pruning.different_groups.*.related_modules", kAny, "null",
           "modules that follow them"),

    tuning_section("compression_training.layer_reduction"),
    not_yet("compression_training.layer_reduction.enabled", kBool, "false", "start from some layers of a larger model"),
    tuning("compression_training.layer_reduction.keep_number_layer", kInt, "null", "how many").min(1),
    tuning("compression_training.layer_reduction.module_name_prefix", kString, "null", "where"),
    tuning("compression_training.layer_reduction.teacher_layer", kIntList, "null", "which").min(0),
    tuning("compression_training.layer_reduction.other_module_name", kStringList, "null", "what else"),
};

}  // namespace

std::span<const KeySpec> compression_keys() {
  return kRows;
}

}  // namespace dslaunch::config
