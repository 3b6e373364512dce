// sparse_attention, eigenvalue, quantize_training, hybrid_engine, tensor_parallel, compile, weight_quantization.
#include "config/key_rows.hpp"

namespace dslaunch::config {
namespace {

constexpr KeySpec kRows[] = {
    {"sparse_attention", kSection, "null", Status::kNotYet, "sparse attention layers"},
    tuning("sparse_attention.mode", kEnum, "\"fixed\"", "pattern").one_of("dense|fixed|variable|bigbird|bslongformer"),
    tuning("sparse_attention.block", kInt, "16", "size of a block").min(1),
    tuning("sparse_attention.different_layout_per_head", kBool, "false", "per head"),
    tuning("sparse_attention.num_local_blocks", kInt, "4", "fixed").min(0),
    tuning("sparse_attention.num_global_blocks", kInt, "1", "fixed").min(0),
    tuning("sparse_attention.attention", kEnum, "\"bidirectional\"", "direction")
        .one_of("bidirectional|unidirectional"),
    tuning("sparse_attention.horizontal_global_attention", kBool, "false", "fixed"),
    tuning("sparse_attention.num_different_global_patterns", kInt, "1", "fixed").min(1),
    tuning("sparse_attention.num_random_blocks", kInt, "0", "variable").min(0),
    tuning("sparse_attention.local_window_blocks", kIntList, "[4]", "variable").min(0),
    tuning("sparse_attention.global_block_indices", kIntList, "[0]", "variable").min(0),
    tuning("sparse_attention.global_block_end_indices", kIntList, "null", "variable").min(0),
    tuning("sparse_attention.num_sliding_window_blocks", kInt, "3", "bigbird, bslongformer").min(0),

    tuning_section("eigenvalue"),
    no_counterpart("eigenvalue.enabled", kBool, "false", "DeepSpeed never reads this section"),
    tuning("eigenvalue.verbose", kBool, "false", "report"),
    tuning("eigenvalue.max_iter", kInt, "100", "maximum iterations").min(1),
    tuning("eigenvalue.tol", kFloat, "0.01", "tolerance").min(0),
    tuning("eigenvalue.stability", kFloat, "1e-6", "stability").min(0),
    tuning("eigenvalue.gas_boundary_resolution", kInt, "1", "how often").min(1),
    tuning("eigenvalue.layer_name", kString, "\"bert.encoder.layer\"", "where"),
    tuning("eigenvalue.layer_num", kInt, "0", "how many").min(0),

    no_counterpart("quantize_training", kAny, "null", "an older section that DeepSpeed itself ignores"),

    tuning_section("hybrid_engine"),
    not_yet("hybrid_engine.enabled", kBool, "false", "generation between training steps"),
    tuning("hybrid_engine.max_out_tokens", kInt, "512", "longest output").min(1),
    tuning("hybrid_engine.inference_tp_size", kInt, "1", "tensor-parallel ranks").min(1),
    tuning("hybrid_engine.release_inference_cache", kBool, "false", "free the cache"),
    tuning("hybrid_engine.pin_parameters", kBool, "true", "page-locked parameters"),
    tuning("hybrid_engine.tp_gather_partition_size", kInt, "8", "gathered at once").min(1),

    tuning_section("tensor_parallel", "tensor parallelism"),
    not_yet("tensor_parallel.autotp_size", kInt, "0", "tensor-parallel ranks; 0 and 1: off").min(0).later(">1"),
    tuning("tensor_parallel.tp_overlap_comm", kBool, "false", "overlap its communication"),
    tuning("tensor_parallel.dtype", kString, "\"fp16\"", "type"),
    tuning_section("tensor_parallel.tp"),
    not_yet("tensor_parallel.tp.tp_size", kInt, "1", "tensor-parallel ranks").min(1).later(">1"),
    tuning("tensor_parallel.tp.tp_grain_size", kInt, "1", "grain of the split").min(1),
    tuning("tensor_parallel.tp.mpu", kAny, "null", "an object of Python"),
    tuning("tensor_parallel.tp.tp_group", kAny, "null", "an object of Python"),
    tuning("tensor_parallel.injection_policy_tuple", kAny, "null", "an object of Python"),
    tuning("tensor_parallel.keep_module_on_host", kBool, "false", "load in host memory"),
    tuning("tensor_parallel.replace_with_kernel_inject", kBool, "false", "kernels of DeepSpeed"),
    not_yet("tensor_parallel.partition_config", kAny, "null", "rules of our own for the split"),
    not_yet("tensor_parallel.preset_model", kString, "null", "a named set of rules"),

    tuning_section("compile"),
    not_yet("compile.deepcompile", kBool, "false", "DeepCompile"),
    tuning("compile.free_activation", kBool, "false", "DeepCompile"),
    tuning("compile.free_activation_threshold", kInt, "10485760", "DeepCompile").min(0),
    tuning("compile.offload_activation", kBool, "false", "DeepCompile"),
    tuning("compile.offload_opt_states", kBool, "false", "DeepCompile"),
    tuning("compile.double_buffer", kBool, "true", "DeepCompile"),
    tuning("compile.symmetric_memory", kBool, "false", "DeepCompile"),
    tuning("compile.debug_log", kBool, "false", "DeepCompile"),
    tuning("compile.offload_parameters", kBool, "false", "DeepCompile"),
    tuning("compile.sync_before_reduce", kBool, "false", "DeepCompile"),
    tuning("compile.sync_after_reduce", kBool, "false", "DeepCompile"),
    tuning("compile.sync_before_allgather", kBool, "false", "DeepCompile"),
    tuning("compile.sync_after_allgather", kBool, "false", "DeepCompile"),
    tuning("compile.keep_int_input_tensors", kBool, "true", "DeepCompile"),
    tuning("compile.keep_all_input_tensors", kBool, "false", "DeepCompile"),
    tuning("compile.passes", kStringList, "null", "DeepCompile"),

    {"weight_quantization", kSection, "null", Status::kNotYet, "quantized weights in inference"},
    tuning("weight_quantization.enabled", kBool, "true", "on when the section is there"),
    tuning("weight_quantization.num_bits", kInt, "8", "bits").min(1),
    tuning("weight_quantization.q_type", kEnum, "\"symmetric\"", "range").one_of("symmetric|asymmetric"),
    tuning("weight_quantization.q_groups", kInt, "1", "groups").min(1),
    tuning_section("weight_quantization.quantized_initialization"),
    tuning("weight_quantization.quantized_initialization.num_bits", kInt, "null", "bits").min(1),
    tuning("weight_quantization.quantized_initialization.group_size", kInt, "null", "group").min(1),
    tuning("weight_quantization.quantized_initialization.group_dim", kInt, "null", "dim").min(0),
    tuning("weight_quantization.quantized_initialization.symmetric", kBool, "null", "range"),
    named("weight_quantization.post_init_quant", "patterns of module names"),
    tuning_section("weight_quantization.post_init_quant.*"),
    tuning("weight_quantization.post_init_quant.*.num_bits", kInt, "null", "bits").min(1),
    tuning("weight_quantization.post_init_quant.*.group_size", kInt, "null", "group").min(1),
    tuning("weight_quantization.post_init_quant.*.group_dim", kInt, "null", "dim").min(0),
    tuning("weight_quantization.post_init_quant.*.symmetric", kBool, "null", "range"),
};

}  // namespace

std::span<const KeySpec> remaining_keys() {
  return kRows;
}

}  // namespace dslaunch::config
