// Options of transformers' TrainingArguments (also of older releases), of `accelerate launch` and of apex that have no
// key of the same meaning, and why; and those whose key has another name and needs no more words.
#include "config/other_tools.hpp"

namespace dslaunch::config {
namespace {

constexpr std::string_view kEvaluations =
    "evaluations happen when data.eval is set, every train.eval_interval steps and at the end";
constexpr std::string_view kEvaluationMetrics =
    "an evaluation computes train.metrics batch by batch, in the precision and with the micro batch of training";
constexpr std::string_view kProgress =
    "a line comes every steps_per_print steps, and RUN_DIR/metrics.jsonl has all steps; --quiet and --verbose say less "
    "and more";
constexpr std::string_view kSaves =
    "checkpoints are written every checkpoint.interval steps and at the end (checkpoint.at_end), each value once; "
    "weights alone come by 'dslaunch consolidate'";
constexpr std::string_view kHub =
    "nothing is uploaded: 'dslaunch consolidate CKPT --hf DIR' writes a directory for 'hf upload'";
constexpr std::string_view kCompiler =
    "the graph is fused into kernels when the model is loaded (kernels.* switch them off); there is nothing to compile";
constexpr std::string_view kOfModel = "it is part of the model: set it when the model is exported (--hf-config)";
constexpr std::string_view kOfLoss = "it is part of the model's loss: set it when the model is exported";
constexpr std::string_view kFsdp =
    "FSDP's sharding is zero_optimization.stage: 3 shards parameters, 2 gradients, 1 optimizer state; "
    "zero_optimization.offload_param and activation_checkpointing do the rest";
constexpr std::string_view kDdp =
    "leave it out: gradients are reduced as zero_optimization says, and parameters may be unused; a bucket's elements "
    "are "
    "zero_optimization.reduce_bucket_size";
constexpr std::string_view kLoader =
    "leave it out: threads read ahead (data.num_workers, data.prefetch) in an order that is always the same";
constexpr std::string_view kSampling =
    "samples come in the order of data.shuffle; short and long ones are not sorted into batches";
constexpr std::string_view kTraining =
    "leave it out: a run trains; --eval_only evaluates, and 'dslaunch infer' predicts";
constexpr std::string_view kGeneration = "'dslaunch infer' has such options: --num_beams, --num_tokens, --temperature";
constexpr std::string_view kOptimizerParams = "each parameter is a key of its own: optimizer.params.NAME";
constexpr std::string_view kScheduleParams = "each parameter is a key of its own: scheduler.params.NAME";
constexpr std::string_view kRecomputation =
    "its settings are keys of activation_checkpointing; a unit is recomputed with the random numbers of its forward";
constexpr std::string_view kDevices =
    "devices are NVIDIA GPUs or CPUs (--device); --include HOST:0,1 chooses among a host's GPUs";
constexpr std::string_view kFp8 = "FP8 training is not supported yet; bf16.enabled is";
constexpr std::string_view kMegatron =
    "Megatron-LM's settings: tensor_parallel.size and pipeline.stages split a model, "
    "zero_optimization.stage its state";
constexpr std::string_view kParallelisms =
    "data ranks are what tensor_parallel.size and pipeline.stages leave; sequences are not split among ranks but "
    "between layers (tensor_parallel.sequence_parallel)";
constexpr std::string_view kNotNeeded = "leave it out: it is the default, or follows from hosts and config";
constexpr std::string_view kStart = "hosts are given by --hostfile, or come from Slurm or the environment";

constexpr OtherName kOptions[] = {
    // optimizer, schedule, loss
    {"clip", "gradient_clipping"},
    {"warmup", "scheduler.params.warmup_num_steps"},
    {"grad_accum", "gradient_accumulation_steps"},
    {"workers", "data.num_workers"},
    {"adafactor", "optimizer.type=Adafactor"},
    {"optim_args", "", "", kOptimizerParams},
    {"lr_scheduler_kwargs", "", "", kScheduleParams},
    {"optim_target_modules", "", "",
     "no optimizer projects gradients (GaLore, APOLLO); Adafactor and AdamW8bit have less state"},
    {"label_smoothing_factor|label_smoothing|average_tokens_across_devices", "", "", kOfLoss},
    {"neftune_noise_alpha|use_cache|attn_implementation|flash_attn", "", "", kOfModel},
    // precision
    {"half_precision_backend|fp16_backend", "", "", "the backend is ours: fp16.enabled, bf16.enabled, or amp as apex"},
    {"fp16_opt_level|opt_level", "amp.opt_level"},
    {"loss_scale", "fp16.loss_scale"},
    {"fp8|fp8_*", "", "", kFp8},
    {"downcast_bf16", "", "", "only TPUs have it"},
    // memory, compilation
    {"gradient_checkpointing_kwargs|activation_checkpointing_kwargs", "", "", kRecomputation},
    {"compile|torch_compile|torch_compile_*|dynamo_*|torchdynamo|use_liger_kernel|liger_kernel_config|jit_mode_eval|"
     "use_ipex",
     "", "", kCompiler},
    {"auto_find_batch_size", "", "", "'dslaunch plan MODEL --config F --suggest' finds the micro batch that fits"},
    {"torch_empty_cache_steps|skip_memory_metrics", "", "",
     "each run reports its memory at the end; PYTORCH_CUDA_ALLOC_CONF is read"},
    {"fsdp|fsdp_*|use_fsdp|sharded_ddp", "", "", kFsdp},
    {"ddp_bucket_cap_mb|ddp_find_unused_parameters|ddp_broadcast_buffers|ddp_static_graph", "", "", kDdp},
    {"ddp_backend|xpu_backend", "", "", "GPUs communicate by NCCL, CPUs by Gloo"},
    {"ddp_timeout", "", "--hang_timeout"},
    // logs
    {"logging_strategy|logging_first_step|logging_nan_inf_filter|log_on_each_node|log_level|log_level_replica|"
     "disable_tqdm|include_num_input_tokens_seen|include_tokens_per_second|debug",
     "", "", kProgress},
    {"project|trackio_*", "", "", "monitors are sections: tensorboard, wandb, csv_monitor"},
    {"logging_dir", "tensorboard.output_path"},
    // evaluations
    {"do_eval|eval_strategy|evaluation_strategy|evaluate_during_training|eval_on_start|eval_delay", "", "",
     kEvaluations},
    {"prediction_loss_only|eval_do_concat_batches|eval_use_gather_object|eval_accumulation_steps|include_for_metrics|"
     "include_inputs_for_metrics|batch_eval_metrics|bf16_full_eval|fp16_full_eval|per_gpu_eval_batch_size",
     "", "", kEvaluationMetrics},
    {"greater_is_better", "checkpoint.keep_best.mode=max"},
    {"generation_num_beams|generation_config", "", "", kGeneration},
    {"do_train|do_predict|do_test", "", "", kTraining},
    // checkpoints
    {"save_strategy|save_only_model|save_on_each_node|save_safetensors|enable_jit_checkpoint", "", "", kSaves},
    {"overwrite_output_dir", "", "",
     "a run directory that has a run is not overwritten: choose another one, or --resume auto"},
    {"ignore_data_skip|restore_callback_states_from_checkpoint", "", "",
     "leave it out: a resumed run continues with the samples that come next; there are no callbacks"},
    {"push_to_hub|push_to_hub_*|hub_*", "", "", kHub},
    // data
    {"data_seed", "data.seed"},
    {"dataloader_pin_memory|dataloader_persistent_workers|dataloader_multiprocessing_context|dataloader_in_order|"
     "split_batches|dispatch_batches|accelerator_config",
     "", "", kLoader},
    {"remove_unused_columns", "", "", "data.inputs and data.labels name the arrays that are used"},
    {"group_by_length|length_column_name|train_sampling_strategy|sortish_sampler", "", "", kSampling},
    {"past_index|mp_parameters|ray_scope", "", "", "nothing here has this setting: leave it out"},
    {"full_determinism", "deterministic=true"},
    // devices and start
    {"use_cpu|no_cuda|cpu", "", "", "the option is --device cpu"},
    {"use_mps_device|tpu|tpu_*|no_tpu_cluster|vm|env|use_xpu|main_training_function|tpu_num_cores|tpu_metrics_debug|"
     "aws_access_key_id|aws_secret_access_key",
     "", "", kDevices},
    {"gpu_ids", "", "", kDevices},
    {"num_machines", "", "--num_nodes"},
    {"machine_rank", "", "--node_rank"},
    {"main_process_ip", "", "--master_addr"},
    {"main_process_port", "", "--master_port"},
    {"deepspeed_config_file|config_file", "", "--config"},
    {"deepspeed_hostfile|mpirun_hostfile", "", "--hostfile"},
    {"deepspeed_inclusion_filter", "", "--include"},
    {"deepspeed_exclusion_filter", "", "--exclude"},
    {"deepspeed_multinode_launcher|mpirun_ccl", "", "", kStart},
    {"deepspeed_moe_layer_cls_names", "", "", "experts are found in the model's graph"},
    {"multi_gpu|same_network|use_deepspeed|use_megatron_lm|use_parallelism_config|zero3_init_flag", "", "", kNotNeeded},
    {"zero3_save_16bit_model", "zero_optimization.stage3_gather_16bit_weights_on_model_save"},
    {"offload_optimizer_nvme_path", "zero_optimization.offload_optimizer.nvme_path"},
    {"offload_param_nvme_path", "zero_optimization.offload_param.nvme_path"},
    {"num_cpu_threads_per_process", "", "", "set OMP_NUM_THREADS; --bind_cores_to_rank gives each rank its cores"},
    {"enable_cpu_affinity", "", "", "the option is --numa_binding node"},
    {"megatron_lm_pp_degree", "pipeline.stages", "--stages"},
    {"megatron_lm_*", "", "", kMegatron},
    {"pp|pp_size|pipeline_parallel|pipeline_parallel_size", "pipeline.stages", "--stages"},
    {"tensor_parallel|tensor_parallelism|model_parallel", "tensor_parallel.size", "--tp"},
    {"dp|dp_size|data_parallel|data_parallel_size|sp|sp_size|ulysses|context_parallel_size|cp|cp_size|"
     "expert_parallel_size|ep_size",
     "", "", kParallelisms},
    {"gpu|ngpus|n_gpus|nproc|np", "", "--num_gpus"},
    {"resume_from|load_checkpoint|load|checkpoint|ckpt|restart", "", "--resume"},
    {"use_env", "", "", "leave it out: LOCAL_RANK is in the environment of every rank"},
    {"parallelism_config|parallelism_config_*", "", "", kParallelisms},
};

}  // namespace

std::span<const OtherName> other_options() {
  return kOptions;
}

}  // namespace dslaunch::config
