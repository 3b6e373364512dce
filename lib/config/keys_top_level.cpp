// The batch triple and DeepSpeed's other top-level scalars.
#include "config/key_rows.hpp"

namespace dslaunch::config {
namespace {

constexpr KeySpec kRows[] = {
    key<&JobConfig::batch, &Batch::train_batch>(
        "train_batch_size", "samples of one optimizer step over all ranks: micro batch × accumulation × ranks")
        .unset()
        .min(1),
    key<&JobConfig::batch, &Batch::micro_batch>("train_micro_batch_size_per_gpu", "samples of one forward on one rank")
        .unset()
        .min(1),
    key<&JobConfig::batch, &Batch::accumulation>("gradient_accumulation_steps", "micro batches of one optimizer step")
        .unset()
        .min(1),

    key<&JobConfig::steps_per_print>("steps_per_print",
                                     "steps between two progress lines; given, DeepSpeed's own lines come too")
        .min(1),
    key<&JobConfig::dump_state>("dump_state", "print the resolved job file at start"),
    key<&JobConfig::wall_clock_breakdown>("wall_clock_breakdown", "time forward, backward, reduction and step"),
    key<&JobConfig::memory_breakdown>("memory_breakdown", "memory use at the phases of a step, with its progress line"),
    key<&JobConfig::gradient_clipping>("gradient_clipping", "limit of the global L2 norm of the gradients; 0: none")
        .min(0)
        .when_auto("1.0"),
    key_as<EnumMember<kCommunicationTypes>, &JobConfig::communication_data_type>(
        "communication_data_type", "type in which gradients are reduced; null: the compute type")
        .in_any_case(),
    key<&JobConfig::prescale_gradients>(
        "prescale_gradients",
        "divide gradients by the number of ranks before the reduction, not after; always before it for fp16"),
    key<&JobConfig::gradient_predivide_factor>("gradient_predivide_factor",
                                               "how much of that division happens before the reduction")
        .above(0)
        .max(1e30),
    key_as<AutoBool, &JobConfig::graph_harvesting>(
        "graph_harvesting",
        "on GPUs: capture forward, backward and reductions of a step as one CUDA graph, and replay it; auto: where the "
        "first steps show that the device waits for the host")
        .unset("\"auto\""),
    rule_key("dataloader_drop_last", kBool, "null",
             "DeepSpeed's name for data.drop_last, which takes precedence when both are given"),
    rule_key("vocabulary_size", kInt, "null", "only checked: a multiple of 8 is faster").min(1),
    rule_key("allgather_size", kInt, "null", "bucket of the deprecated \"zero_optimization\": true").min(0),
};

}  // namespace

std::span<const KeySpec> top_level_keys() {
  return kRows;
}

}  // namespace dslaunch::config
