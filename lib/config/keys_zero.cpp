// zero_optimization and its members.
#include "config/key_rows.hpp"

namespace dslaunch::config {
namespace {

constexpr KeySpec kRows[] = {
    section("zero_optimization"),
    supported("zero_optimization.stage", kInt, "0",
              "what is sharded over the ranks; 0: nothing, 1: optimizer state, 2: and gradients, 3: and parameters")
        .min(0)
        .max(3),
    no_counterpart("zero_optimization.contiguous_gradients", kBool, "true", "gradients always lie in flat buffers"),
    supported("zero_optimization.reduce_scatter", kBool, "true", "reduce gradients to their owner instead of to all"),
    supported("zero_optimization.reduce_bucket_size", kInt, "500000000", "elements that are reduced at once")
        .min(0)
        .when_auto("late"),
    no_counterpart("zero_optimization.use_multi_rank_bucket_allreduce", kBool, "true",
                   "a bucket here always splits evenly among its owners"),
    supported("zero_optimization.allgather_partitions", kBool, "true",
              "updated parameters travel by all-gather instead of broadcasts"),
    supported("zero_optimization.allgather_bucket_size", kInt, "500000000", "elements that are gathered at once")
        .min(0),
    supported("zero_optimization.overlap_comm", kBool, "null",
              "reduce gradients while backward runs; null: false in stages 0 to 2, true in stage 3"),
    no_counterpart("zero_optimization.load_from_fp32_weights", kBool, "true",
                   "checkpoints always have the fp32 weights, and those are loaded"),
    no_counterpart("zero_optimization.elastic_checkpoint", kBool, "false",
                   "every checkpoint loads at every world size"),
    {"zero_optimization.offload_param", kSection, "null", Status::kTuning, "where parameters rest (stage 3)"},
    not_yet("zero_optimization.offload_param.device", kEnum, "\"none\"", "keep parameters in host memory or in a file")
        .one_of("none|cpu|nvme"),
    tuning("zero_optimization.offload_param.nvme_path", kString, "null", "directory for them"),
    tuning("zero_optimization.offload_param.buffer_count", kInt, "5", "buffers").min(0),
    tuning("zero_optimization.offload_param.buffer_size", kInt, "100000000", "elements of a buffer").min(0),
    tuning("zero_optimization.offload_param.max_in_cpu", kInt, "1000000000", "elements that stay in host memory")
        .min(0),
    tuning("zero_optimization.offload_param.pin_memory", kBool, "false", "page-locked host memory"),
    {"zero_optimization.offload_optimizer", kSection, "null", Status::kTuning, "where optimizer state rests"},
    not_yet("zero_optimization.offload_optimizer.device", kEnum, "\"none\"",
            "keep optimizer state in host memory or in a file")
        .one_of("none|cpu|nvme"),
    tuning("zero_optimization.offload_optimizer.nvme_path", kString, "null", "directory for it"),
    tuning("zero_optimization.offload_optimizer.buffer_count", kInt, "4", "buffers").min(0),
    tuning("zero_optimization.offload_optimizer.pin_memory", kBool, "false", "page-locked host memory"),
    tuning("zero_optimization.offload_optimizer.pipeline_read", kBool, "false", "read ahead"),
    tuning("zero_optimization.offload_optimizer.pipeline_write", kBool, "false", "write behind"),
    tuning("zero_optimization.offload_optimizer.fast_init", kBool, "false", "faster start with a file"),
    tuning("zero_optimization.offload_optimizer.ratio", kFloat, "1.0", "part of the state that is offloaded")
        .min(0)
        .max(1),
    tuning("zero_optimization.offload_optimizer.super_offload", kBool, "false", "SuperOffload"),
    tuning("zero_optimization.offload_optimizer.cpuadam_cores_perc", kFloat, "0.8", "part of the cores for Adam")
        .min(0)
        .max(1),
    {"zero_optimization.zenflow", kSection, "null", Status::kNotYet, "asynchronous offloaded updates"},
    tuning("zero_optimization.zenflow.topk_ratio", kFloat, "0.1", "important part of the gradients").min(0).max(1),
    tuning("zero_optimization.zenflow.select_strategy", kEnum, "\"auto\"", "when they are chosen")
        .one_of("auto|step|epoch"),
    tuning("zero_optimization.zenflow.select_interval", kInt, "\"auto\"", "how often they are chosen").min(1),
    tuning("zero_optimization.zenflow.update_interval", kInt, "\"auto\"", "how often the rest is updated").min(1),
    tuning("zero_optimization.zenflow.overlap_step", kBool, "false", "overlap with the next step"),
    tuning("zero_optimization.zenflow.offload", kBool, "false", "offload the chosen part"),
    tuning("zero_optimization.zenflow.auto_ratio", kFloat, "0.99", "threshold of the automatic interval").min(0).max(1),
    tuning("zero_optimization.zenflow.full_warm_up_rounds", kInt, "0", "full updates at the start").min(0),
    tuning("zero_optimization.zenflow.pt_reserved_cores_perc", kFloat, "0.5", "cores that PyTorch keeps").min(0).max(1),
    tuning("zero_optimization.zenflow.steps_per_epoch", kInt, "null", "set by DeepSpeed").min(1),
    no_counterpart("zero_optimization.sub_group_size", kInt, "1000000000",
                   "stage 3: the optimizer works in place on its shards, whatever their size")
        .min(0),
    supported("zero_optimization.stage3_prefetch_bucket_size", kInt, "50000000",
              "stage 3: elements gathered ahead of their use; 0: none")
        .min(0)
        .when_auto("late"),
    supported("zero_optimization.stage3_param_persistence_threshold", kInt, "100000",
              "stage 3: parameters of at most this many elements stay unsharded")
        .min(0)
        .when_auto("late"),
    supported("zero_optimization.stage3_model_persistence_threshold", kInt, "9223372036854775807",
              "stage 3: maximum elements that stay unsharded")
        .min(0),
    supported("zero_optimization.stage3_max_live_parameters", kInt, "1000000000",
              "stage 3: maximum elements in the slots where units are gathered (at least one unit)")
        .min(0),
    no_counterpart("zero_optimization.stage3_max_reuse_distance", kInt, "1000000000",
                   "stage 3: a unit stays in its slot until another one needs it")
        .min(0),
    supported("zero_optimization.stage3_gather_16bit_weights_on_model_save", kBool, "false",
              "every checkpoint also has the full weights in the compute type, weights.safetensors; at any stage"),
    no_counterpart("zero_optimization.stage3_module_granularity_threshold", kInt, "0",
                   "stage 3: \"units\" says what is gathered as one"),
    no_counterpart("zero_optimization.stage3_use_all_reduce_for_fetch_params", kBool, "false",
                   "stage 3: units are fetched by all-gather"),
    no_counterpart("zero_optimization.stage3_allgather_sequential", kBool, "false",
                   "stage 3: gathers follow one another on one stream anyway"),
    tuning("zero_optimization.save_muon_momentum_buffer_in_memory", kBool, "false", "Muon's momentum on the device"),
    no_counterpart("zero_optimization.ignore_unused_parameters", kBool, "true",
                   "parameters without gradient are always fine: theirs is zero"),
    no_counterpart("zero_optimization.legacy_stage1", kBool, "false", "an implementation that DeepSpeed removed"),
    no_counterpart("zero_optimization.round_robin_gradients", kBool, "false",
                   "every bucket is split evenly among the ranks anyway"),
    supported("zero_optimization.zero_hpz_partition_size", kInt, "1",
              "ZeRO++, stage 3: ranks (of one host) that keep a second copy of the parameters in parts, so that later "
              "gathers of a step stay among them; 1: off")
        .min(0),
    supported("zero_optimization.zero_quantized_weights", kBool, "false",
              "ZeRO++, stage 3: gather weights as 8-bit integers"),
    supported("zero_optimization.zero_quantized_nontrainable_weights", kBool, "false",
              "stage 3: frozen weights are stored and gathered as 8-bit integers"),
    supported("zero_optimization.zero_quantized_gradients", kBool, "false",
              "ZeRO++, stages 2 and 3: reduce gradients as 4-bit integers"),
    {"zero_optimization.zeropp_loco_param", kSection, "null", Status::kSupported,
     "ZeRO++: the quantization error of gradients is added at the next step (LoCo)"},
    supported("zero_optimization.zeropp_loco_param.err_beta", kFloat, "null",
              "weight of the past error (0.8); giving either key switches LoCo on")
        .min(0)
        .max(1),
    supported("zero_optimization.zeropp_loco_param.reset_T", kInt, "null",
              "steps after which the error starts from zero (1024)")
        .min(1),
    not_yet("zero_optimization.mics_shard_size", kInt, "-1", "MiCS: ranks of one shard group; -1: off")
        .min(-1)
        .later(">0"),
    tuning("zero_optimization.mics_hierarchical_params_gather", kBool, "false", "MiCS: gather in two levels"),
    no_counterpart("zero_optimization.memory_efficient_linear", kBool, "true", "units are gathered again for backward"),
    no_counterpart("zero_optimization.pipeline_loading_checkpoint", kBool, "false",
                   "checkpoints are mapped, not loaded"),
    no_counterpart("zero_optimization.override_module_apply", kBool, "true", "patches a method of Python's modules"),
    no_counterpart("zero_optimization.log_trace_cache_warnings", kBool, "false", "there is no trace cache"),
    no_counterpart("zero_optimization.enable_sanity_checks", kBool, "false", "checks are always on"),
    no_counterpart("zero_optimization.grad_hooks", kAny, "null", "documented by DeepSpeed, rejected by its code"),
    no_counterpart("zero_optimization.cpu_offload_use_pin_memory", kBool, "null", "deprecated, without effect"),
    {"zero_optimization.leaf_module", kSection, "null", Status::kNoCounterpart,
     "\"units\" says what is gathered as one"},
    no_counterpart("zero_optimization.leaf_module.classes", kStringList, "null", "\"units\" takes class names"),
    no_counterpart("zero_optimization.leaf_module.names", kStringList, "null", "\"units\" takes module paths"),
    no_counterpart("zero_optimization.leaf_module.name_suffixes", kStringList, "null", "\"units\" takes module paths"),
};

}  // namespace

std::span<const KeySpec> zero_keys() {
  return kRows;
}

}  // namespace dslaunch::config
