// Every key of DeepSpeed's files that does nothing here, with the reason: features that are not implemented yet, keys
// that adjust such a feature, and keys without a counterpart. Data only. Long because the formats are; one row a key.
#include "config/key_table.hpp"

namespace dslaunch::config {
namespace {

using enum Kind;

// Enabling it is an error; `reason`: what is not implemented.
constexpr KeySpec not_yet(std::string_view path, Kind kind, std::string_view fallback, std::string_view reason) {
  return {path, kind, fallback, Status::kNotYet, reason};
}
// Adjusts a feature that is not implemented.
constexpr KeySpec tuning(std::string_view path, Kind kind, std::string_view fallback, std::string_view what) {
  return {path, kind, fallback, Status::kTuning, what};
}
// Accepted with a note; `reason`: why dslaunch does not need it.
constexpr KeySpec no_counterpart(std::string_view path, Kind kind, std::string_view fallback, std::string_view reason) {
  return {path, kind, fallback, Status::kNoCounterpart, reason};
}
// The section of one feature.
constexpr KeySpec tuning_section(std::string_view path, std::string_view feature = "") {
  return {path, kSection, "null", Status::kTuning, feature};
}
// A section with several features.
constexpr KeySpec features_section(std::string_view path) {
  return {path, kSection, "null", Status::kSupported, ""};
}
// A section with user-defined names.
constexpr KeySpec tuning_named(std::string_view path, std::string_view what) {
  return {path, kNamed, "null", Status::kTuning, what};
}

constexpr std::string_view kNoTorchCompile = "torch.compile works on Python; models here are TorchScript";
constexpr std::string_view kNoGrain = "heads are kept whole; other dims are split as evenly as they divide";
constexpr std::string_view kPythonObject = "an object of Python";
constexpr std::string_view kDelayedScaling =
    "delayed scaling rounds by the maxima of earlier steps; fp8.recipe scales by those of the tensor itself";
constexpr std::string_view kOwnCollectives =
    "values of one bit are exchanged as all others are, with NCCL between GPUs and Gloo between CPU ranks";
constexpr std::string_view kNoLossScale = "bfloat16 needs no loss scale";

constexpr KeySpec kTrainingKeys[] = {
    tuning("seq_parallel_communication_data_type", kEnum, "\"fp32\"", "the same for sequence-parallel gradients")
        .one_of("fp32|bf16|fp16")
        .in_any_case(),
    not_yet("sparse_gradients", kBool, "false", "sparse reduction of embedding gradients"),
    no_counterpart("disable_allgather", kBool, "false",
                   "a switch of an older ZeRO that DeepSpeed itself leaves unused"),
    no_counterpart("zero_allow_untested_optimizer", kBool, "false",
                   "every optimizer here is our own and works with every supported stage"),
    no_counterpart(
        "zero_force_ds_cpu_optimizer", kBool, "true",
        "it is about optimizers that a training script brings, and none does here; an offloaded optimizer is "
        "always updated by dslaunch's own code"),
    tuning("use_data_before_expert_parallelism", kBool, "false", "order of ranks for mixtures of experts"),
    not_yet("sequence_parallel_size", kInt, "null", "ranks that share a sequence").min(1).later(">1"),
    tuning("data_parallel_size", kInt, "null", "data-parallel ranks of a mesh with sequence parallelism").min(1),

    no_counterpart("optimizer.legacy_fusion", kBool, "false", "chooses between two of DeepSpeed's fp16 wrappers"),
    no_counterpart("optimizer.params.set_grad_none", kBool, "true", "gradients have no tensors of their own here"),
    no_counterpart("optimizer.params.fp32_optimizer_states", kBool, "true", "optimizer states are fp32 here"),
    no_counterpart("optimizer.params.foreach", kBool, "null", "chooses one of PyTorch's implementations"),
    no_counterpart("optimizer.params.fused", kBool, "null", "chooses one of PyTorch's implementations"),
    no_counterpart("optimizer.params.capturable", kBool, "false", "chooses one of PyTorch's implementations"),
    no_counterpart("optimizer.params.differentiable", kBool, "false", "chooses one of PyTorch's implementations"),
    tuning("optimizer.params.max_grad_norm", kFloat, "0.0", "rejected: gradient_clipping does this").min(0),
    no_counterpart("optimizer.params.cuda_aware", kBool, "false", kOwnCollectives),
    no_counterpart("optimizer.params.comm_backend_name", kString, "\"nccl\"", kOwnCollectives),

    no_counterpart("scheduler.params.cycle_first_stair_count", kInt, "0",
                   "DeepSpeed accepts it and does not use it either")
        .min(0),
    no_counterpart("scheduler.params.cycle_second_stair_count", kInt, "null",
                   "DeepSpeed accepts it and does not use it either")
        .min(0),
    not_yet("scheduler.params.last_batch_iteration", kInt, "-1",
            "a schedule that begins in its middle; --resume continues the checkpoint's schedule"),

    not_yet("fp16.fp16_master_weights_and_grads", kBool, "false",
            "masters and gradients in fp16: updates below half of a weight's last bit would be lost; masters are fp32, "
            "with "
            "offload_optimizer in host memory"),

    no_counterpart("bf16.auto_cast", kBool, "false", "inputs are cast in any case"),
    no_counterpart("bf16.loss_scale", kFloat, "0.0", kNoLossScale).min(0),
    no_counterpart("bf16.initial_scale_power", kInt, "16", kNoLossScale).min(0),
    no_counterpart("bf16.loss_scale_window", kInt, "1000", kNoLossScale).min(1),
    no_counterpart("bf16.hysteresis", kInt, "2", kNoLossScale).min(0),
    no_counterpart("bf16.consecutive_hysteresis", kBool, "false", kNoLossScale),
    no_counterpart("bf16.min_loss_scale", kFloat, "1.0", kNoLossScale).min(0),
    no_counterpart("bf16.immediate_grad_update", kBool, "false", "gradients are always accumulated as they arrive"),
    no_counterpart("bf16.check_grad_overflow", kBool, "false", "a non-finite loss always ends the run"),
    not_yet("bf16.bf16_master_weights_and_grads", kBool, "false", "master weights in bfloat16"),
    not_yet("bf16.bf16_optimizer_states", kBool, "false", "moments in bfloat16"),

    not_yet("fp8.margin", kInt, "null", kDelayedScaling),
    not_yet("fp8.interval", kInt, "null", kDelayedScaling),
    not_yet("fp8.amax_history_len", kInt, "null", kDelayedScaling),
    not_yet("fp8.amax_compute_algo", kString, "null", kDelayedScaling),
    not_yet("fp8.fp8_format", kString, "null", "fp8.recipe says which operands are e4m3 and which e5m2"),

    no_counterpart("amp.*", kAny, "null", "an argument of apex without a counterpart"),

    no_counterpart("torch_autocast.lower_precision_safe_modules", kStringList, "null",
                   "gradients are reduced in communication_data_type, fp32 under autocast"),

    no_counterpart("zero_optimization.contiguous_gradients", kBool, "true", "gradients always lie in flat buffers"),
    no_counterpart("zero_optimization.use_multi_rank_bucket_allreduce", kBool, "true",
                   "a bucket here always splits evenly among its owners"),
    no_counterpart("zero_optimization.load_from_fp32_weights", kBool, "true",
                   "checkpoints always have the fp32 weights, and those are loaded"),
    no_counterpart("zero_optimization.elastic_checkpoint", kBool, "false",
                   "every checkpoint loads at every world size"),
    no_counterpart("zero_optimization.offload_optimizer.fast_init", kBool, "false",
                   "state is always created where it is kept, sub-group by sub-group"),
    not_yet("zero_optimization.offload_optimizer.super_offload", kBool, "false",
            "SuperOffload updates before the gradient norm is known and takes updates back, which needs a copy of all "
            "optimizer state; offload_optimizer.delayed_update runs the update under the next step without one"),
    {"zero_optimization.zenflow", kSection, "null", Status::kNotYet,
     "ZenFlow applies most gradients several steps late, so the run is no longer that of one process; "
     "offload_optimizer.delayed_update hides the update with one step of delay"},
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
    not_yet("zero_optimization.mics_shard_size", kInt, "-1", "MiCS: ranks of one shard group; -1: off")
        .min(-1)
        .later(">0"),
    tuning("zero_optimization.mics_hierarchical_params_gather", kBool, "false", "MiCS: gather in two levels"),
    no_counterpart("zero_optimization.memory_efficient_linear", kBool, "true", "units are gathered again for backward"),
    no_counterpart("zero_optimization.pipeline_loading_checkpoint", kBool, "false",
                   "checkpoints are mapped, not loaded"),
    no_counterpart("zero_optimization.override_module_apply", kBool, "true", "patches a method of Python's modules"),
    no_counterpart("zero_optimization.log_trace_cache_warnings", kBool, "false", "dslaunch has no trace cache"),
    no_counterpart("zero_optimization.enable_sanity_checks", kBool, "false", "checks are always on"),
    no_counterpart("zero_optimization.grad_hooks", kAny, "null", "documented by DeepSpeed, rejected by its code"),
    no_counterpart("zero_optimization.cpu_offload_use_pin_memory", kBool, "null",
                   "deprecated, and without effect in DeepSpeed too; write offload_optimizer.pin_memory"),
    {"zero_optimization.leaf_module", kSection, "null", Status::kNoCounterpart,
     "\"units\" says what is gathered as one"},
    no_counterpart("zero_optimization.leaf_module.classes", kStringList, "null", "\"units\" takes class names"),
    no_counterpart("zero_optimization.leaf_module.names", kStringList, "null", "\"units\" takes module paths"),
    no_counterpart("zero_optimization.leaf_module.name_suffixes", kStringList, "null", "\"units\" takes module paths"),

    no_counterpart("aio.single_submit", kBool, "false", "a request is submitted as soon as its buffer is ready"),
    no_counterpart("aio.overlap_events", kBool, "true", "a request's end is awaited only where its data is needed"),
    not_yet("aio.use_gds", kBool, "false",
            "GPUDirect Storage needs a kernel module and a library of NVIDIA; state in files passes through host "
            "memory, where it is updated"),

    no_counterpart("pipeline.seed_layers", kBool, "false",
                   "layers are not built here: their values come from the model file or from \"init\", whose values do "
                   "not depend on the stages"),
    no_counterpart("pipeline.pipe_partitioned", kBool, "true",
                   "activations are sent whole, from each tensor rank to its own"),
    no_counterpart("pipeline.grad_partitioned", kBool, "true",
                   "gradients are sent whole, from each tensor rank to its own"),
    no_counterpart("pipeline.use_reentrant", kBool, "true",
                   "chooses one of PyTorch's two ways to recompute; here there is one, without the limits of either"),

    no_counterpart("checkpoint.tag_validation", kEnum, "\"Warn\"",
                   "checkpoints are named by the step, the same on every rank")
        .one_of("Ignore|Warn|Fail")
        .in_any_case(),
    no_counterpart("checkpoint.load_universal", kBool, "false", "every checkpoint loads at every world size and stage"),
    tuning_section("checkpoint.parallel_write"),
    tuning("checkpoint.parallel_write.pipeline_stage", kBool, "false",
           "data-parallel ranks share the writing of a stage"),
    no_counterpart("checkpoint.checkpoint_serialization", kBool, "true",
                   "checkpoints are safetensors, not zip archives"),
    no_counterpart("checkpoint.writer", kAny, "null", "there is one writer, and it is asynchronous"),

    not_yet("datastates_ckpt", kAny, "null", "another asynchronous checkpoint engine; ours: checkpoint.async")
        .later("*"),

    tuning_section("nebula"),
    not_yet("nebula.enabled", kBool, "false", "checkpoints to Azure"),
    tuning("nebula.persistent_storage_path", kString, "null", "where they go"),
    tuning("nebula.persistent_time_interval", kInt, "100", "seconds between them").min(1),
    tuning("nebula.num_of_version_in_retention", kInt, "2", "versions kept in memory").min(1),
    tuning("nebula.enable_nebula_load", kBool, "true", "load through it"),
    tuning("nebula.nebula_load_path", kString, "null", "load from another path"),

    tuning_section("comet"),
    not_yet("comet.enabled", kBool, "false", "Comet; metrics.jsonl is always written"),
    tuning("comet.samples_log_interval", kInt, "100", "samples between two points").min(1),
    tuning("comet.project", kString, "null", "its project"),
    tuning("comet.workspace", kString, "null", "its workspace"),
    tuning("comet.api_key", kString, "null", "its key"),
    tuning("comet.experiment_name", kString, "null", "its name"),
    tuning("comet.experiment_key", kString, "null", "its identity"),
    tuning("comet.online", kBool, "null", "over the network"),
    tuning("comet.mode", kEnum, "null", "new or existing").one_of("get|create|get_or_create"),

    no_counterpart("timers.throughput.synchronized", kBool, "true",
                   "times come from the device itself; a step has no synchronisation inside"),

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

    no_counterpart("data_efficiency.data_sampling.num_workers", kInt, "0",
                   "data.num_workers counts the loader's threads")
        .min(0),
    no_counterpart("data_efficiency.data_sampling.pin_memory", kBool, "false",
                   "batches for a GPU always lie in page-locked memory"),
    no_counterpart("data_efficiency.data_sampling.curriculum_learning.data_cluster_path", kString, "null",
                   "the samples of each difficulty are kept in memory, not in files"),
    no_counterpart("data_efficiency.data_routing.random_ltd.micro_batch_size", kInt, "null",
                   "train_micro_batch_size_per_gpu has it")
        .min(1),
    no_counterpart("data_efficiency.data_routing.random_ltd.global_batch_size", kInt, "null", "train_batch_size has it")
        .min(1),
    no_counterpart("data_efficiency.data_routing.random_ltd.sample_idx", kAny, "null", "set by DeepSpeed"),
    no_counterpart("data_efficiency.data_routing.random_ltd.attention_mask", kAny, "null", "set by DeepSpeed"),
    tuning_section("data_efficiency.data_routing.random_ltd.layer_token_lr_schedule"),
    not_yet("data_efficiency.data_routing.random_ltd.layer_token_lr_schedule.enabled", kBool, "false",
            "a learning rate by consumed tokens, for which DeepSpeed raises NotImplementedError too"),
    tuning("data_efficiency.data_routing.random_ltd.layer_token_lr_schedule.total_layer_tokens", kInt, "null",
           "its length")
        .min(1),
    tuning("data_efficiency.data_routing.random_ltd.layer_token_lr_schedule.warmup_layer_tokens", kInt, "null",
           "its warm-up")
        .min(0),

    tuning_section("progressive_layer_drop"),
    not_yet("progressive_layer_drop.enabled", kBool, "false", "skip layers at random").required(),
    tuning("progressive_layer_drop.theta", kFloat, "1.0", "kept in the end").min(0).max(1),
    tuning("progressive_layer_drop.gamma", kFloat, "0.001", "how fast").min(0),

    features_section("compression_training"),
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
    tuning_named("compression_training.weight_quantization.different_groups", "groups of modules"),
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
    tuning_named("compression_training.activation_quantization.different_groups", "groups of modules"),
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
    tuning_named("compression_training.sparse_pruning.different_groups", "groups of modules"),
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
    tuning_named("compression_training.row_pruning.different_groups", "groups of modules"),
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
    tuning_named("compression_training.channel_pruning.different_groups", "groups of modules"),
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
    tuning_named("compression_training.head_pruning.different_groups", "groups of modules"),
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

    no_counterpart("tensor_parallel.dtype", kString, "\"fp16\"", "bf16.enabled and fp16.enabled are the type"),
    no_counterpart("tensor_parallel.tp.tp_grain_size", kInt, "1", kNoGrain).min(1),
    no_counterpart("tensor_parallel.tp.mpu", kAny, "null", kPythonObject),
    no_counterpart("tensor_parallel.tp.tp_group", kAny, "null", kPythonObject),
    no_counterpart("tensor_parallel.keep_module_on_host", kBool, "false", "models are mapped, not copied"),
    no_counterpart("tensor_parallel.replace_with_kernel_inject", kBool, "false",
                   "kernels are chosen by the model's graph, in training as well"),
    no_counterpart("tensor_parallel.preset_model", kString, "null",
                   "the split follows from the model's graph, not from its name"),
    no_counterpart("tensor_parallel.partition_config.embedding_partition_dim", kInt, "1",
                   "the split of embeddings follows from the model's graph"),
    no_counterpart("tensor_parallel.partition_config.lm_head_patterns", kStringList, "null",
                   "the head is found in the model's graph"),

    tuning_section("compile"),
    not_yet("compile.deepcompile", kBool, "false", "DeepCompile"),
    no_counterpart("compile.enabled", kBool, "false", kNoTorchCompile),
    no_counterpart("compile.backend", kAny, "null", kNoTorchCompile),
    no_counterpart("compile.kwargs", kAny, "null", kNoTorchCompile),
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
    tuning_named("weight_quantization.post_init_quant", "patterns of module names"),
    tuning_section("weight_quantization.post_init_quant.*"),
    tuning("weight_quantization.post_init_quant.*.num_bits", kInt, "null", "bits").min(1),
    tuning("weight_quantization.post_init_quant.*.group_size", kInt, "null", "group").min(1),
    tuning("weight_quantization.post_init_quant.*.group_dim", kInt, "null", "dim").min(0),
    tuning("weight_quantization.post_init_quant.*.symmetric", kBool, "null", "range"),
};

// At the top level of DeepSpeed's inference files.
constexpr KeySpec kInferenceKeys[] = {
    not_yet("replace_with_kernel_inject", kBool, "false", "inference: kernels of DeepSpeed in place of layers"),
    {"dtype", kEnum, "null", Status::kNotYet, "inference: type of the weights",
     "fp16|half|bf16|bfloat16|fp32|float|float16|float32|int8|torch.float16|torch.half|torch.bfloat16|torch.float32|"
     "torch.float|torch.int8"},

    no_counterpart("tensor_parallel.tp_grain_size", kInt, "64", kNoGrain).min(1),
    no_counterpart("tensor_parallel.mpu", kAny, "null", kPythonObject),
    no_counterpart("tensor_parallel.tp_group", kAny, "null", kPythonObject),

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
    no_counterpart("training_mp_size", kInt, "1", "every checkpoint loads at every number of ranks").min(1),
    not_yet("transposed_mode", kBool, "false", "inference: layout of the weights"),
    no_counterpart("replace_method", kString, "\"auto\"", "inference: deprecated by DeepSpeed"),
    not_yet("config", kAny, "null", "inference: an object of Python"),
    tuning("max_out_tokens", kInt, "1024", "inference: longest output").min(1),
    tuning("min_out_tokens", kInt, "1", "inference: shortest output").min(1),
    no_counterpart("mpu", kAny, "null", "an object of Python"),
    not_yet("ep_size", kInt, "1", "inference: deprecated, moe.ep_size").min(1).later(">1"),
    no_counterpart("ep_group", kAny, "null", "an object of Python"),
    no_counterpart("ep_mp_group", kAny, "null", "an object of Python"),
    tuning("moe_experts", kIntList, "[1]", "inference: deprecated, moe.moe_experts").min(1),
    tuning("moe_type", kEnum, "\"standard\"", "inference: deprecated, moe.type").one_of("standard|residual"),
};

}  // namespace

std::span<const KeySpec> unsupported_training_keys() {
  return kTrainingKeys;
}
std::span<const KeySpec> unsupported_inference_keys() {
  return kInferenceKeys;
}

}  // namespace dslaunch::config
