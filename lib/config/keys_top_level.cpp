// The batch triple and DeepSpeed's other top-level scalars.
#include "config/key_rows.hpp"

namespace dslaunch::config {
namespace {

constexpr KeySpec kRows[] = {
    supported("train_batch_size", kInt, "null",
              "samples of one optimizer step over all ranks: micro batch × accumulation × ranks")
        .min(1),
    supported("train_micro_batch_size_per_gpu", kInt, "null", "samples of one forward on one rank").min(1),
    supported("gradient_accumulation_steps", kInt, "null", "micro batches of one optimizer step").min(1),

    supported("steps_per_print", kInt, "10", "steps between two progress lines; given, DeepSpeed's own lines come too")
        .min(1),
    supported("dump_state", kBool, "false", "print the resolved job file at start"),
    supported("wall_clock_breakdown", kBool, "false", "time forward, backward, reduction and step"),
    supported("memory_breakdown", kBool, "false", "memory use at the phases of a step, with its progress line"),
    supported("gradient_clipping", kFloat, "0.0", "limit of the global L2 norm of the gradients; 0: none")
        .min(0)
        .when_auto("1.0"),
    supported("communication_data_type", kEnum, "null", "type in which gradients are reduced; null: the compute type")
        .one_of("fp32|bf16|fp16")
        .in_any_case(),
    supported("prescale_gradients", kBool, "false",
              "divide gradients by the number of ranks before the reduction, not after; always before it for fp16"),
    supported("gradient_predivide_factor", kFloat, "1.0", "how much of that division happens before the reduction")
        .above(0)
        .max(1e30),
    supported("graph_harvesting", kBool, "false",
              "on GPUs: capture forward, backward and reductions of a step as one CUDA graph, and replay it"),
    supported("dataloader_drop_last", kBool, "null",
              "DeepSpeed's name for data.drop_last, which takes precedence when both are given"),
    supported("vocabulary_size", kInt, "null", "only checked: a multiple of 8 is faster").min(1),
    supported("allgather_size", kInt, "null", "bucket of the deprecated \"zero_optimization\": true").min(0),
};

}  // namespace

std::span<const KeySpec> top_level_keys() {
  return kRows;
}

}  // namespace dslaunch::config
