// optimizer and scheduler. optimizer_rules.cpp defines which parameter belongs to which type.
#include "config/key_rows.hpp"

namespace dslaunch::config {
namespace {

constexpr KeySpec kRows[] = {
    section("optimizer"),
    supported("optimizer.type", kEnum, "\"AdamW\"", "the optimizer")
        .one_of("AdamW|Adam|SGD|Adagrad|Lamb|Lion|Muon|OneBitAdam|ZeroOneAdam|OneBitLamb|MuAdam|MuAdamW|MuSGD|"
                "Adadelta|Adafactor|Adamax|ASGD|LBFGS|NAdam|RAdam|RMSprop|Rprop|SparseAdam")
        .later("OneBitAdam|ZeroOneAdam|OneBitLamb|MuAdam|MuAdamW|MuSGD|"
               "Adadelta|Adafactor|Adamax|ASGD|LBFGS|NAdam|RAdam|RMSprop|Rprop|SparseAdam")
        .in_any_case(),
    {"optimizer.param_groups", kNamed, "null", Status::kSupported,
     "parameters with settings of their own: NAME: {match: […], weight_decay: 0, …}; the first match wins"},
    {"optimizer.param_groups.*", kSection, "null", Status::kSupported, "one group"},
    supported("optimizer.param_groups.*.match", kStringList, "null",
              "patterns over parameter names (*, ?, [...]), or \"ndim<2\" and the like; any of them"),
    supported("optimizer.param_groups.*.lr", kFloat, "null", "learning rate of the group").min(0),
    supported("optimizer.param_groups.*.betas", kFloatList, "null", "betas of the group").min(0).below(1),
    supported("optimizer.param_groups.*.eps", kFloat, "null", "eps of the group").min(0),
    supported("optimizer.param_groups.*.weight_decay", kFloat, "null", "weight decay of the group").min(0),
    supported("optimizer.param_groups.*.momentum", kFloat, "null", "momentum of the group (SGD, Muon)").min(0),
    supported("optimizer.param_groups.*.use_muon", kBool, "null",
              "Muon: whether the group's matrices are orthogonalised; null: by name"),
    supported("optimizer.no_decay", kStringList, "null",
              "patterns of parameters without weight decay; \"auto\": biases and the weights of norms")
        .when_auto("[\"auto\"]"),
    section("optimizer.params"),
    supported("optimizer.params.lr", kFloat, "0.001", "learning rate").min(0).when_auto("5e-5"),
    supported("optimizer.params.betas", kFloatList, "[0.9, 0.999]",
              "decay of the two moments (Adam, AdamW, Lamb, Lion; Muon: of the parameters that are not matrices)")
        .min(0)
        .below(1),
    supported("optimizer.params.eps", kFloat, "1e-8", "added to the denominator (Adam, AdamW, Lamb, Adagrad)").min(0),
    supported("optimizer.params.weight_decay", kFloat, "0.0", "weight decay").min(0),
    supported("optimizer.params.bias_correction", kBool, "true",
              "correct the moments' start at zero (Adam, AdamW, Lamb)"),
    supported("optimizer.params.adam_w_mode", kBool, "true", "Adam: weight decay apart from the gradient, as in AdamW"),
    supported("optimizer.params.torch_adam", kBool, "false",
              "takes PyTorch's default: weight_decay 0.01, unless Adam has adam_w_mode false"),
    supported("optimizer.params.amsgrad", kBool, "false", "divide by the largest second moment so far (Adam, AdamW)"),
    supported("optimizer.params.momentum", kFloat, "0.0", "momentum (SGD; Muon, whose default is 0.95)").min(0),
    supported("optimizer.params.dampening", kFloat, "0.0", "damping of the momentum (SGD)"),
    supported("optimizer.params.nesterov", kBool, "false", "Nesterov momentum (SGD)"),
    supported("optimizer.params.maximize", kBool, "false", "climb instead of descend (Adam, AdamW, SGD, Adagrad)"),
    supported("optimizer.params.lr_decay", kFloat, "0.0", "Adagrad: the rate is lr / (1 + (step - 1) * lr_decay)")
        .min(0),
    supported("optimizer.params.initial_accumulator_value", kFloat, "0.0", "Adagrad: where the sum of squares starts")
        .min(0),
    supported("optimizer.params.muon_lr", kFloat, "null", "Muon: learning rate of the matrices; null: lr, or 0.02")
        .min(0),
    supported("optimizer.params.adam_lr", kFloat, "null",
              "Muon: learning rate of all other parameters; null: lr, or 0.0003")
        .min(0),
    supported("optimizer.params.eps_inside_sqrt", kBool, "false", "Lamb: eps is added under the square root"),
    supported("optimizer.params.max_coeff", kFloat, "10.0", "Lamb: largest trust ratio").min(0),
    supported("optimizer.params.min_coeff", kFloat, "0.01", "Lamb: smallest trust ratio").min(0),

    section("scheduler"),
    supported("scheduler.type", kEnum, "null", "how the learning rate changes over the steps; null: it does not")
        .one_of("WarmupLR|WarmupDecayLR|WarmupCosineLR|LRRangeTest|OneCycle|"
                "StepLR|MultiStepLR|ConstantLR|LinearLR|ExponentialLR|PolynomialLR|CosineAnnealingLR|"
                "CosineAnnealingWarmRestarts|CyclicLR|OneCycleLR|ReduceLROnPlateau")
        .later("StepLR|MultiStepLR|ConstantLR|LinearLR|ExponentialLR|PolynomialLR|CosineAnnealingLR|"
               "CosineAnnealingWarmRestarts|CyclicLR|OneCycleLR|ReduceLROnPlateau"),
    section("scheduler.params"),
    supported("scheduler.params.warmup_min_lr", kFloat, "0.0", "learning rate at the start of the warm-up")
        .min(0)
        .each_group(),
    supported("scheduler.params.warmup_max_lr", kFloat, "null",
              "learning rate after the warm-up; null: the optimizer's (the default of WarmupDecayLR is 0.001)")
        .min(0)
        .each_group(),
    supported("scheduler.params.warmup_num_steps", kInt, "1000", "steps of the warm-up").min(0).when_auto("0"),
    supported("scheduler.params.warmup_type", kEnum, "\"log\"", "shape of the warm-up").one_of("log|linear"),
    supported("scheduler.params.total_num_steps", kInt, "null", "where the decay ends").min(1).when_auto("late"),
    supported("scheduler.params.warmup_min_ratio", kFloat, "0.0",
              "WarmupCosineLR: start, as a part of the optimizer's rate")
        .min(0)
        .each_group(),
    supported("scheduler.params.cos_min_ratio", kFloat, "0.0001",
              "WarmupCosineLR: end, as a part of the optimizer's rate")
        .min(0)
        .each_group(),
    supported("scheduler.params.lr_range_test_min_lr", kFloat, "0.001", "LRRangeTest: where the rate starts")
        .min(0)
        .each_group(),
    supported("scheduler.params.lr_range_test_step_size", kInt, "2000", "LRRangeTest: steps between increases").min(1),
    supported("scheduler.params.lr_range_test_step_rate", kFloat, "1.0",
              "LRRangeTest: what each increase adds, as a part of the start"),
    supported("scheduler.params.lr_range_test_staircase", kBool, "false",
              "LRRangeTest: increase at once instead of a little each step"),
    supported("scheduler.params.cycle_min_lr", kFloat, "null", "OneCycle: rate at both ends of the cycle")
        .min(0)
        .each_group(),
    supported("scheduler.params.cycle_max_lr", kFloat, "null", "OneCycle: rate at the top of the cycle")
        .min(0)
        .each_group(),
    supported("scheduler.params.decay_lr_rate", kFloat, "0.0",
              "OneCycle: after the cycle the rate is divided by 1 + decay_lr_rate * steps / decay_step_size")
        .min(0),
    supported("scheduler.params.cycle_first_step_size", kInt, "2000", "OneCycle: steps up").min(1),
    supported("scheduler.params.cycle_second_step_size", kInt, "null", "OneCycle: steps down; null: as many as up")
        .min(1),
    supported("scheduler.params.decay_step_size", kInt, "0", "OneCycle: steps of one decay; 0: no decay").min(0),
    supported("scheduler.params.cycle_momentum", kBool, "true",
              "OneCycle: move beta1 against the rate and set beta2 to 0.99; ignored by optimizers without betas"),
    supported("scheduler.params.cycle_min_mom", kFloat, "0.8", "OneCycle: beta1 at the top of the cycle")
        .min(0)
        .below(1),
    supported("scheduler.params.cycle_max_mom", kFloat, "0.9", "OneCycle: beta1 at both ends of the cycle")
        .min(0)
        .below(1),
    supported("scheduler.params.decay_mom_rate", kFloat, "0.0",
              "OneCycle: after the cycle beta1 is multiplied by 1 + decay_mom_rate * steps / decay_step_size"),
};

}  // namespace

std::span<const KeySpec> optimizer_keys() {
  return kRows;
}

}  // namespace dslaunch::config
