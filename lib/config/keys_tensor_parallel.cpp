// tensor_parallel: each layer on several ranks, and DeepSpeed's names for it.
#include "config/key_rows.hpp"

namespace dslaunch::config {
namespace {

constexpr KeySpec kRows[] = {
    section("tensor_parallel"),
    key<&JobConfig::tensor_parallel, &TensorParallel::size>(
        "tensor_parallel.size",
        "ranks that hold every layer together, each a part of its products (docs/tensor_parallel.md); auto: --tp, or 1")
        .min(1)
        .max(65536),
    key<&JobConfig::tensor_parallel, &TensorParallel::sequence_parallel>(
        "tensor_parallel.sequence_parallel",
        "norms and what else lies between the products are split along the positions of the sequences; needs no "
        "activation_checkpointing.partition_activations"),
    key<&JobConfig::tensor_parallel, &TensorParallel::overlap>(
        "tensor_parallel.overlap",
        "backward all-reduces an input's gradient while it computes the weight's; null: on GPUs"),
    rule_key("tensor_parallel.probe", kAny, "\"distinct\"",
             "which units are compared with their unsplit form before the first step, on random parameters: distinct "
             "(one of each kind), all, or false"),
    named_section("tensor_parallel.policy",
                  "how products are split, where the graph shall not decide: end of a module's name: column, row, "
                  "whole, or {split, parts: sizes of the parts of a fused weight}"),
    rule_key("tensor_parallel.policy.*", kAny, "null", "column, row, whole, or {split, parts}"),

    // DeepSpeed's names.
    rule_key("tensor_parallel.enabled", kBool, "true", "false: size 1, whatever the other keys say"),
    rule_key("tensor_parallel.autotp_size", kInt, "null", "DeepSpeed's name of size in training; 0: 1")
        .min(0)
        .max(65536),
    rule_key("tensor_parallel.tp_size", kInt, "null", "DeepSpeed's name of size in inference").min(1).max(65536),
    section("tensor_parallel.tp"),
    rule_key("tensor_parallel.tp.tp_size", kInt, "null", "another of DeepSpeed's names of size").min(1).max(65536),
    rule_key("mp_size", kInt, "null", "DeepSpeed's older name of tensor_parallel.size").min(1).max(65536),
    named_section(
        "injection_policy",
        "class of a block: ends of the names of its row-parallel modules; the graph decides about the others"),
    rule_key("injection_policy.*", kStringList, "null", "ends of the names of row-parallel modules"),
    rule_key("tensor_parallel.injection_policy_tuple", kStringList, "null",
             "ends of the names of row-parallel modules, in all blocks"),
    section("tensor_parallel.partition_config"),
    rule_key("tensor_parallel.partition_config.tp_size", kInt, "null", "another of DeepSpeed's names of size")
        .min(1)
        .max(65536),
    rule_key("tensor_parallel.partition_config.layer_specs", kAny, "[]",
             "how products are split: a list of {patterns: for the start of parameters' names, partition_type: column, "
             "row or skip, shape: with the parts of a fused weight, partition_dim}"),
    rule_key("tensor_parallel.partition_config.use_default_specs", kBool, "true",
             "the graph decides about products without a layer_spec; false: they stay whole"),
    rule_key("tensor_parallel.partition_config.strict_mode", kBool, "false",
             "a product without a layer_spec is an error"),
};

}  // namespace

std::span<const KeySpec> tensor_parallel_keys() {
  return kRows;
}

}  // namespace dslaunch::config
