// Keys of DeepSpeed's inference configuration, at the top level of such a file. They have no effect in training.
#include "config/key_rows.hpp"

namespace dslaunch::config {
namespace {

constexpr KeySpec kRows[] = {
    not_yet("replace_with_kernel_inject", kBool, "false", "inference: kernels of DeepSpeed in place of layers"),
    {"dtype", kEnum, "null", Status::kNotYet, "inference: type of the weights",
     "fp16|half|bf16|bfloat16|fp32|float|float16|float32|int8|torch.float16|torch.half|torch.bfloat16|torch.float32|"
     "torch.float|torch.int8"},
    tuning("tensor_parallel.enabled", kBool, "true", "inference: tensor parallelism"),
    not_yet("tensor_parallel.tp_size", kInt, "1", "inference: tensor-parallel ranks").min(1).later(">1"),
    tuning("tensor_parallel.tp_grain_size", kInt, "64", "inference: grain of the split").min(1),
    tuning("tensor_parallel.mpu", kAny, "null", "inference: an object of Python"),
    tuning("tensor_parallel.tp_group", kAny, "null", "inference: an object of Python"),
    not_yet("enable_cuda_graph", kBool, "false", "inference: capture a graph"),
    not_yet("use_triton", kBool, "false", "inference: Triton kernels"),
    tuning("triton_autotune", kBool, "false", "inference: tune Triton kernels"),
    not_yet("zero", kAny, "null", "inference: a ZeRO section"),
    no_counterpart("triangular_masking", kBool, "true", "inference: masks belong to the model"),
    tuning_section("moe", "inference: mixtures of experts"),
    tuning("moe.enabled", kBool, "true", "inference: mixtures of experts"),
    not_yet("moe.ep_size", kInt, "1", "inference: expert-parallel ranks").min(1).later(">1"),
    tuning("moe.moe_experts", kIntList, "[1]", "inference: experts").min(1),
    tuning("moe.type", kEnum, "\"standard\"", "inference: kind of experts").one_of("standard|residual"),
    tuning("moe.ep_mp_group", kAny, "null", "inference: an object of Python"),
    tuning("moe.ep_group", kAny, "null", "inference: an object of Python"),
    no_counterpart("keep_module_on_host", kBool, "false", "inference: models are mapped, not copied"),
    {"quant", kSection, "null", Status::kNotYet, "inference: 8-bit weights"},
    tuning("quant.enabled", kBool, "true", "inference: on when the section is there"),
    tuning("quant.activation", kAny, "null", "inference: activations"),
    tuning_section("quant.weight"),
    tuning("quant.weight.num_bits", kInt, "8", "inference: bits").min(1),
    tuning("quant.weight.q_type", kEnum, "\"symmetric\"", "inference: range").one_of("symmetric|asymmetric"),
    tuning("quant.weight.q_groups", kInt, "1", "inference: groups").min(1),
    tuning("quant.weight.enabled", kBool, "true", "inference: weights"),
    tuning("quant.weight.quantized_initialization", kAny, "null", "inference: at start"),
    tuning("quant.weight.post_init_quant", kAny, "null", "inference: after start"),
    tuning("quant.qkv", kAny, "null", "inference: attention"),
    not_yet("base_dir", kString, "null", "inference: directory of the weights"),
    not_yet("save_mp_checkpoint_path", kString, "null", "inference: where split weights are saved"),
    not_yet("checkpoint_config", kAny, "null", "inference: the weights"),
    no_counterpart("set_empty_params", kBool, "false", "inference: models exported empty use init"),
    not_yet("return_tuple", kBool, "true", "inference: what forward returns"),
    not_yet("training_mp_size", kInt, "1", "inference: ranks of the training run").min(1).later(">1"),
    not_yet("transposed_mode", kBool, "false", "inference: layout of the weights"),
    no_counterpart("replace_method", kString, "\"auto\"", "inference: deprecated by DeepSpeed"),
    not_yet("injection_policy", kAny, "null", "inference: an object of Python"),
    not_yet("injection_policy_tuple", kAny, "null", "inference: an object of Python"),
    not_yet("config", kAny, "null", "inference: an object of Python"),
    tuning("max_out_tokens", kInt, "1024", "inference: longest output").min(1),
    tuning("min_out_tokens", kInt, "1", "inference: shortest output").min(1),
    not_yet("mp_size", kInt, "1", "inference: deprecated, tensor_parallel.tp_size").min(1).later(">1"),
    no_counterpart("mpu", kAny, "null", "an object of Python"),
    not_yet("ep_size", kInt, "1", "inference: deprecated, moe.ep_size").min(1).later(">1"),
    no_counterpart("ep_group", kAny, "null", "an object of Python"),
    no_counterpart("ep_mp_group", kAny, "null", "an object of Python"),
    tuning("moe_experts", kIntList, "[1]", "inference: deprecated, moe.moe_experts").min(1),
    tuning("moe_type", kEnum, "\"standard\"", "inference: deprecated, moe.type").one_of("standard|residual"),
};

}  // namespace

std::span<const KeySpec> inference_keys() {
  return kRows;
}

}  // namespace dslaunch::config
