// aio, activation_checkpointing, pipeline, DeepSpeed's keys of checkpoint, datastates_ckpt, nebula.
#include "config/key_rows.hpp"

namespace dslaunch::config {
namespace {

constexpr KeySpec kRows[] = {
    tuning_section("aio", "how offloaded state is read and written"),
    tuning("aio.block_size", kInt, "1048576", "bytes of one read or write").min(1),
    tuning("aio.queue_depth", kInt, "8", "requests in flight").min(1),
    tuning("aio.intra_op_parallelism", kInt, "1", "threads of one request").min(1),
    no_counterpart("aio.thread_count", kInt, "null", "DeepSpeed documents it and reads intra_op_parallelism").min(1),
    tuning("aio.single_submit", kBool, "false", "submit requests one by one"),
    tuning("aio.overlap_events", kBool, "true", "overlap submission and completion"),
    tuning("aio.use_gds", kBool, "false", "GPUDirect storage"),

    section("activation_checkpointing"),
    supported("activation_checkpointing.enabled", kBool, "null",
              "recompute blocks in backward instead of storing activations; null: on when a key of the section asks "
              "for something"),
    supported("activation_checkpointing.number_checkpoints", kInt, "null",
              "how many blocks are recomputed, from the first; null: all")
        .min(1),
    supported("activation_checkpointing.cpu_checkpointing", kBool, "false",
              "saved inputs of blocks are stored in pinned host memory; needs no partition_activations"),
    supported("activation_checkpointing.contiguous_memory_optimization", kBool, "false",
              "saved inputs lie in one buffer that the first step sizes; needs no number_checkpoints"),
    supported("activation_checkpointing.partition_activations", kBool, "false",
              "switches recomputation on; splitting saved inputs needs tensor parallelism, which is not implemented"),
    supported("activation_checkpointing.synchronize_checkpoint_boundary", kBool, "false",
              "wait for the device before and after each pass over a block"),
    supported("activation_checkpointing.profile", kBool, "false",
              "a line with the time of forward and recomputation of blocks; waits for the device"),

    tuning_section("pipeline", "pipeline parallelism"),
    not_yet("pipeline.stages", kInt, "\"auto\"", "pipeline stages").min(1).later(">1"),
    tuning("pipeline.partition", kString, "\"best\"", "how layers are dealt to stages"),
    tuning("pipeline.seed_layers", kBool, "false", "a seed for every layer"),
    not_yet("pipeline.activation_checkpoint_interval", kInt, "0", "layers that are recomputed as one").min(0),
    tuning("pipeline.pipe_partitioned", kBool, "true", "send activations split over tensor-parallel ranks"),
    tuning("pipeline.grad_partitioned", kBool, "true", "the same for gradients"),
    tuning("pipeline.use_reentrant", kBool, "true", "a mode of PyTorch's recomputation"),

    no_counterpart("checkpoint.tag_validation", kEnum, "\"Warn\"",
                   "checkpoints are named by the step, the same on every rank")
        .one_of("Ignore|Warn|Fail")
        .in_any_case(),
    no_counterpart("checkpoint.load_universal", kBool, "false", "every checkpoint loads at every world size and stage"),
    supported("checkpoint.use_node_local_storage", kBool, "false",
              "every node stores its ranks' part of a checkpoint in its own directory; false: all hosts share one"),
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
};

}  // namespace

std::span<const KeySpec> storage_keys() {
  return kRows;
}

}  // namespace dslaunch::config
