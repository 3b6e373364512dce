// fp16, bf16, amp, torch_autocast, data_types.
#include "config/key_rows.hpp"

namespace dslaunch::config {
namespace {

constexpr KeySpec kRows[] = {
    section("fp16"),
    rule_key("fp16.enabled", kBool, "false",
             "compute in half precision with fp32 master weights and a loss scale; traces that were exported in fp32 "
             "follow; "
             "auto: bf16 on GPUs that have it, else fp32")
        .when_auto("late"),
    rule_key("fp16.auto_cast", kBool, "false", "cast the inputs to half precision; this is done in any case"),
    rule_key("fp16.loss_scale", kFloat, "0.0", "static loss scale; 0: dynamic").min(0),
    rule_key("fp16.initial_scale_power", kInt, "16", "the dynamic scale starts at 2 to this power").min(0).max(127),
    rule_key("fp16.loss_scale_window", kInt, "1000", "clean steps before the scale doubles").min(1),
    rule_key("fp16.hysteresis", kInt, "2", "overflows before the scale halves (ZeRO 1 to 3; at stage 0 each halves it)")
        .min(1),
    rule_key("fp16.consecutive_hysteresis", kBool, "false", "refill that budget on every clean step"),
    rule_key("fp16.min_loss_scale", kInt, "1", "floor of the scale; an overflow there ends the run").min(0),

    section("bf16"),
    rule_key(
        "bf16.enabled", kBool, "false",
        "compute in bfloat16 with fp32 master weights; traces that were exported in fp32 follow; auto: bf16 on GPUs "
        "that have it, else fp32")
        .when_auto("late"),

    section("amp"),
    rule_key("amp.enabled", kBool, "false", "mixed precision by apex's levels").required(),
    rule_key("amp.opt_level", kEnum, "\"O1\"",
             "O0: fp32; O1: autocast to fp16; O2: fp16 with fp32 batch norms and master weights; O3: fp16 throughout")
        .one_of("O0|O1|O2|O3"),
    rule_key("amp.loss_scale", kAny, "null",
             "\"dynamic\" or a number; null: dynamic for O1 and O2, 1 for O3 (O0 has none)"),
    rule_key("amp.min_loss_scale", kFloat, "null", "floor of the dynamic scale; null: 2^-24").min(0),
    rule_key("amp.max_loss_scale", kFloat, "16777216.0", "ceiling of the dynamic scale").above(0),
    rule_key("amp.keep_batchnorm_fp32", kBool, "null", "batch norms stay in the model's type; null: O2 yes, O3 no"),
    rule_key("amp.master_weights", kBool, "null", "fp32 master weights; null: O2 yes, O3 no"),

    section("torch_autocast"),
    rule_key("torch_autocast.enabled", kBool, "false",
             "PyTorch's autocast: fp32 parameters, forward computes in low precision where that is safe"),
    rule_enum<kAutocastTypes>("torch_autocast.dtype", "its low-precision type; null: bf16. fp16 brings a loss scale"),

    section("fp8"),
    rule_key("fp8.enabled", kBool, "false",
             "the GEMMs of wide linear layers compute in fp8, forward and backward; needs bf16.enabled, and GPUs of "
             "compute capability 8.9 or higher (CPU ranks emulate the rounding)"),
    rule_enum<kFp8Recipes>("fp8.recipe",
                           "scales by torchao's recipes: tensorwise: one for each tensor; rowwise: one for each row; "
                           "rowwise_with_gw_hp: as rowwise, and weight gradients in bf16; null: tensorwise")
        .later("delayed")
        .refuses("delayed: delayed scaling rounds by the maxima of earlier steps, which every checkpoint would have to "
                 "hold; tensorwise uses the maximum of the tensor itself"),

    section("data_types"),
    key_as<EnumMember<kAccumulationTypes>, &JobConfig::grad_accum_dtype>(
        "data_types.grad_accum_dtype", "type in which gradients are summed over micro batches; null: fp32")
        .in_any_case(),
};

}  // namespace

std::span<const KeySpec> precision_keys() {
  return kRows;
}

}  // namespace dslaunch::config
