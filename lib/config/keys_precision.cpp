// fp16, bf16, amp, torch_autocast, data_types.
#include "config/key_rows.hpp"

namespace dslaunch::config {
namespace {

constexpr KeySpec kRows[] = {
    section("fp16"),
    not_yet("fp16.enabled", kBool, "false", "compute in half precision; auto: bf16 on GPUs that have it, else fp32")
        .when_auto("late"),
    not_yet("fp16.auto_cast", kBool, "false", "cast the inputs to half precision"),
    tuning("fp16.loss_scale", kFloat, "0.0", "static loss scale; 0: dynamic").min(0),
    tuning("fp16.initial_scale_power", kInt, "16", "the dynamic scale starts at 2 to this power").min(0),
    tuning("fp16.loss_scale_window", kInt, "1000", "clean steps before the scale doubles").min(1),
    tuning("fp16.hysteresis", kInt, "2", "overflows before the scale halves").min(1),
    tuning("fp16.consecutive_hysteresis", kBool, "false", "refill that budget on every clean step"),
    tuning("fp16.min_loss_scale", kInt, "1", "floor of the scale").min(0),
    tuning("fp16.fp16_master_weights_and_grads", kBool, "false", "master weights in half precision"),

    section("bf16"),
    supported("bf16.enabled", kBool, "false",
              "compute in bfloat16 with fp32 master weights; auto: bf16 on GPUs that have it, else fp32")
        .when_auto("late"),
    no_counterpart("bf16.immediate_grad_update", kBool, "false", "gradients are always accumulated as they arrive"),
    no_counterpart("bf16.check_grad_overflow", kBool, "false", "a loss that is not finite always ends the run"),
    not_yet("bf16.bf16_master_weights_and_grads", kBool, "false", "master weights in bfloat16"),
    not_yet("bf16.bf16_optimizer_states", kBool, "false", "moments in bfloat16"),

    section("amp"),
    not_yet("amp.enabled", kBool, "false", "NVIDIA apex mixed precision").required(),
    tuning("amp.opt_level", kString, "null", "O0 to O3"),
    tuning("amp.*", kAny, "null", "handed to apex by DeepSpeed"),

    section("torch_autocast"),
    not_yet("torch_autocast.enabled", kBool, "false", "PyTorch's autocast"),
    tuning("torch_autocast.dtype", kEnum, "null", "its low-precision type")
        .one_of("bfloat16|float16|torch.bfloat16|torch.float16|bf16|fp16"),
    tuning("torch_autocast.lower_precision_safe_modules", kStringList, "null", "classes that stay in low precision"),

    section("data_types"),
    supported("data_types.grad_accum_dtype", kEnum, "null",
              "type in which gradients are summed over micro steps; null: fp32")
        .one_of("fp32|bf16|fp16")
        .later("fp16")
        .in_any_case(),
};

}  // namespace

std::span<const KeySpec> precision_keys() {
  return kRows;
}

}  // namespace dslaunch::config
