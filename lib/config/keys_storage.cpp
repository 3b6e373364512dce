// activation_checkpointing, and DeepSpeed's keys of checkpoint.
#include "config/key_rows.hpp"

namespace dslaunch::config {
namespace {

constexpr KeySpec kRows[] = {

    section("activation_checkpointing"),
    key<&JobConfig::recomputation, &Recomputation::enabled>(
        "activation_checkpointing.enabled",
        "recompute blocks in backward instead of storing activations; null: on when a key of the section asks "
        "for something")
        .unset(),
    key<&JobConfig::recomputation, &Recomputation::selective>(
        "activation_checkpointing.selective",
        "on GPUs outputs of norms and activation functions that linear layers read are recomputed in backward; "
        "independent of the section's other keys"),
    key<&JobConfig::recomputation, &Recomputation::number_checkpoints>(
        "activation_checkpointing.number_checkpoints",
        "the blocks are split evenly into so many groups, each recomputed as a whole; null: each block by itself")
        .min(1),
    key<&JobConfig::recomputation, &Recomputation::cpu_checkpointing>(
        "activation_checkpointing.cpu_checkpointing",
        "saved inputs of blocks are stored in pinned host memory; needs no partition_activations"),
    key<&JobConfig::recomputation, &Recomputation::contiguous_memory_optimization>(
        "activation_checkpointing.contiguous_memory_optimization",
        "saved inputs lie in one buffer that the first step sizes; needs no number_checkpoints"),
    key<&JobConfig::recomputation, &Recomputation::partition_activations>(
        "activation_checkpointing.partition_activations",
        "switches recomputation on; each tensor rank keeps its part of the saved inputs of blocks"),
    key<&JobConfig::recomputation, &Recomputation::synchronize_checkpoint_boundary>(
        "activation_checkpointing.synchronize_checkpoint_boundary",
        "wait for the device before and after each pass over a block"),
    key<&JobConfig::recomputation, &Recomputation::profile>(
        "activation_checkpointing.profile",
        "a line with the time of forward and recomputation of blocks; waits for the device"),
    key<&JobConfig::checkpoint, &Checkpoint::use_node_local_storage>(
        "checkpoint.use_node_local_storage",
        "every node stores its ranks' part of a checkpoint in its own directory; false: all hosts share one"),
};

}  // namespace

std::span<const KeySpec> storage_keys() {
  return kRows;
}

}  // namespace dslaunch::config
