// activation_checkpointing, and DeepSpeed's keys of checkpoint.
#include "config/key_rows.hpp"

namespace dslaunch::config {
namespace {

constexpr KeySpec kRows[] = {

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
    supported("checkpoint.use_node_local_storage", kBool, "false",
              "every node stores its ranks' part of a checkpoint in its own directory; false: all hosts share one"),
};

}  // namespace

std::span<const KeySpec> storage_keys() {
  return kRows;
}

}  // namespace dslaunch::config
