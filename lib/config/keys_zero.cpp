// zero_optimization and its members.
#include "config/key_rows.hpp"

namespace dslaunch::config {
namespace {

constexpr KeySpec kRows[] = {
    section("zero_optimization"),
    key<&JobConfig::zero, &Zero::stage>(
        "zero_optimization.stage",
        "what is sharded over the ranks; 0: nothing, 1: optimizer state, 2: and gradients, 3: and parameters")
        .min(0)
        .max(3),
    key<&JobConfig::zero, &Zero::reduce_scatter>("zero_optimization.reduce_scatter",
                                                 "reduce gradients to their owner instead of to all"),
    key<&JobConfig::zero, &Zero::reduce_bucket_size>("zero_optimization.reduce_bucket_size",
                                                     "elements that are reduced at once")
        .min(0)
        .or_fraction()
        .when_auto("late"),
    key<&JobConfig::zero, &Zero::allgather_partitions>("zero_optimization.allgather_partitions",
                                                       "updated parameters travel by all-gather instead of broadcasts"),
    key<&JobConfig::zero, &Zero::allgather_bucket_size>("zero_optimization.allgather_bucket_size",
                                                        "elements that are gathered at once")
        .min(0)
        .or_fraction(),
    key<&JobConfig::zero, &Zero::overlap_comm>(
        "zero_optimization.overlap_comm",
        "reduce gradients while backward runs; null: false in stages 0 to 2, true in stage 3")
        .unset(),
    key<&JobConfig::zero, &Zero::prefetch_bucket_size>("zero_optimization.stage3_prefetch_bucket_size",
                                                       "stage 3: elements gathered ahead of their use; 0: none")
        .min(0)
        .or_fraction()
        .when_auto("late"),
    key<&JobConfig::zero, &Zero::param_persistence_threshold>(
        "zero_optimization.stage3_param_persistence_threshold",
        "stage 3: parameters of at most this many elements stay unsharded")
        .min(0)
        .or_fraction()
        .when_auto("late"),
    key<&JobConfig::zero, &Zero::model_persistence_threshold>("zero_optimization.stage3_model_persistence_threshold",
                                                              "stage 3: maximum elements that stay unsharded")
        .min(0)
        .or_fraction(),
    key<&JobConfig::zero, &Zero::max_live_parameters>(
        "zero_optimization.stage3_max_live_parameters",
        "stage 3: maximum elements in the slots where units are gathered (at least one unit)")
        .min(0)
        .or_fraction(),
    key<&JobConfig::zero, &Zero::max_reuse_distance>(
        "zero_optimization.stage3_max_reuse_distance",
        "stage 3: units stay gathered from forward to backward if fewer elements than this are gathered between")
        .min(0)
        .or_fraction(),
    key<&JobConfig::zero, &Zero::gather_16bit_weights_on_save>(
        "zero_optimization.stage3_gather_16bit_weights_on_model_save",
        "every checkpoint also has the full weights in the compute type, weights.safetensors; at any stage"),
    key<&JobConfig::zero, &Zero::hpz_partition_size>(
        "zero_optimization.zero_hpz_partition_size",
        "ZeRO++, stage 3: ranks (of one host) that keep a second copy of the parameters in parts, so that later "
        "gathers of a step stay among them; 1: off")
        .min(0),
    key<&JobConfig::zero, &Zero::quantized_weights>("zero_optimization.zero_quantized_weights",
                                                    "ZeRO++, stage 3: gather weights as 8-bit integers"),
    key<&JobConfig::zero, &Zero::quantized_frozen>("zero_optimization.zero_quantized_nontrainable_weights",
                                                   "stage 3: frozen weights are stored and gathered as 8-bit integers"),
    key<&JobConfig::zero, &Zero::quantized_gradients>("zero_optimization.zero_quantized_gradients",
                                                      "ZeRO++, stages 2 and 3: reduce gradients as 4-bit integers"),
    section("zero_optimization.zeropp_loco_param",
            "ZeRO++: the quantization error of gradients is added at the next step (LoCo)"),
    key<&JobConfig::zero, &Zero::loco, &Zero::Loco::beta>(
        "zero_optimization.zeropp_loco_param.err_beta",
        "weight of the past error (0.8); giving either key switches LoCo on")
        .unset()
        .min(0)
        .max(1),
    key<&JobConfig::zero, &Zero::loco, &Zero::Loco::reset_interval>(
        "zero_optimization.zeropp_loco_param.reset_T", "steps after which the error starts from zero (1024)")
        .unset()
        .min(1),
};

}  // namespace

std::span<const KeySpec> zero_keys() {
  return kRows;
}

}  // namespace dslaunch::config
