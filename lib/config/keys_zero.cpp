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
    supported("zero_optimization.reduce_scatter", kBool, "true", "reduce gradients to their owner instead of to all"),
    supported("zero_optimization.reduce_bucket_size", kInt, "500000000", "elements that are reduced at once")
        .min(0)
        .when_auto("late"),
    supported("zero_optimization.allgather_partitions", kBool, "true",
              "updated parameters travel by all-gather instead of broadcasts"),
    supported("zero_optimization.allgather_bucket_size", kInt, "500000000", "elements that are gathered at once")
        .min(0),
    supported("zero_optimization.overlap_comm", kBool, "null",
              "reduce gradients while backward runs; null: false in stages 0 to 2, true in stage 3"),
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
    supported("zero_optimization.stage3_gather_16bit_weights_on_model_save", kBool, "false",
              "every checkpoint also has the full weights in the compute type, weights.safetensors; at any stage"),
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
};

}  // namespace

std::span<const KeySpec> zero_keys() {
  return kRows;
}

}  // namespace dslaunch::config
