// optimizer and scheduler. optimizer_rules.cpp defines which parameter belongs to which type.
#include "config/key_rows.hpp"

namespace dslaunch::config {
namespace {

// One list in the file, two members.
struct Betas {
  static constexpr Kind kKind = kFloatList;
  static void assign(Optimizer& to, const Value& list) {
    to.beta1 = list.items.at(0).number;
    to.beta2 = list.items.at(1).number;
  }
  static Value to_value(const Optimizer& from) {
    return Value::of_array({Value::of_float(from.beta1), Value::of_float(from.beta2)});
  }
};

constexpr KeySpec kRows[] = {
    section("optimizer"),
    key_as<EnumMember<kOptimizerTypes>, &JobConfig::optimizer, &Optimizer::type>("optimizer.type", "the optimizer")
        .later("MuAdam|MuAdamW|MuSGD|LBFGS|SparseAdam")
        .also("FusedAdam=Adam|DeepSpeedCPUAdam=Adam|FusedLamb=Lamb|FusedLion=Lion|DeepSpeedCPULion=Lion|"
              "DeepSpeedCPUAdagrad=Adagrad|adamw_torch=AdamW|adamw_torch_fused=AdamW|adamw_hf=AdamW|adamw_8bit="
              "AdamW8bit|adamw_bnb_8bit=AdamW8bit")
        .in_any_case(),
    named_section(
        "optimizer.param_groups",
        "parameters with settings of their own: NAME: {match: […], weight_decay: 0, …}; the first match wins"),
    section("optimizer.param_groups.*", "one group"),
    key<&ParameterGroup::match>("optimizer.param_groups.*.match",
                                "patterns over parameter names (*, ?, [...]), or \"ndim<2\" and the like; any of them")
        .unset(),
    key<&ParameterGroup::lr>("optimizer.param_groups.*.lr", "learning rate of the group").min(0),
    rule_key("optimizer.param_groups.*.betas", kFloatList, "null", "betas of the group").min(0).below(1),
    key<&ParameterGroup::eps>("optimizer.param_groups.*.eps", "eps of the group").min(0),
    key<&ParameterGroup::weight_decay>("optimizer.param_groups.*.weight_decay", "weight decay of the group").min(0),
    key<&ParameterGroup::momentum>("optimizer.param_groups.*.momentum", "momentum of the group (SGD, Muon)").min(0),
    key<&ParameterGroup::use_muon>("optimizer.param_groups.*.use_muon",
                                   "Muon: whether the group's matrices are orthogonalised; null: by name"),
    key<&JobConfig::optimizer, &Optimizer::no_decay>(
        "optimizer.no_decay", "patterns of parameters without weight decay; \"auto\": biases and the weights of norms")
        .unset()
        .when_auto("[\"auto\"]"),
    section("optimizer.params"),
    key<&JobConfig::optimizer, &Optimizer::lr>("optimizer.params.lr", "learning rate").min(0).when_auto("5e-5"),
    key_as<Betas, &JobConfig::optimizer>(
        "optimizer.params.betas",
        "decay of the two moments (Adam, AdamW, Lamb, Lion, NAdam, RAdam, Adamax; Muon: of the parameters that are not "
        "matrices)")
        .min(0)
        .below(1),
    key<&JobConfig::optimizer, &Optimizer::eps>("optimizer.params.eps",
                                                "added to the denominator (all but SGD, Lion, Rprop and ASGD)")
        .min(0),
    key<&JobConfig::optimizer, &Optimizer::weight_decay>("optimizer.params.weight_decay", "weight decay").min(0),
    key<&JobConfig::optimizer, &Optimizer::bias_correction>("optimizer.params.bias_correction",
                                                            "correct the moments' start at zero (Adam, AdamW, Lamb)"),
    key<&JobConfig::optimizer, &Optimizer::decoupled_weight_decay>(
        "optimizer.params.adam_w_mode", "Adam: weight decay apart from the gradient, as in AdamW"),
    rule_key("optimizer.params.torch_adam", kBool, "false",
             "takes PyTorch's default: weight_decay 0.01, unless Adam has adam_w_mode false"),
    key<&JobConfig::optimizer, &Optimizer::amsgrad>("optimizer.params.amsgrad",
                                                    "divide by the largest second moment so far (Adam, AdamW)"),
    key<&JobConfig::optimizer, &Optimizer::momentum>("optimizer.params.momentum",
                                                     "momentum (SGD, RMSprop; Muon, whose default is 0.95)")
        .min(0),
    key<&JobConfig::optimizer, &Optimizer::dampening>("optimizer.params.dampening", "damping of the momentum (SGD)"),
    key<&JobConfig::optimizer, &Optimizer::nesterov>("optimizer.params.nesterov", "Nesterov momentum (SGD)"),
    key<&JobConfig::optimizer, &Optimizer::maximize>("optimizer.params.maximize",
                                                     "climb instead of descend (all but Lion, Lamb and Muon)"),
    key<&JobConfig::optimizer, &Optimizer::lr_decay>("optimizer.params.lr_decay",
                                                     "Adagrad: the rate is lr / (1 + (step - 1) * lr_decay)")
        .min(0),
    key<&JobConfig::optimizer, &Optimizer::initial_accumulator_value>("optimizer.params.initial_accumulator_value",
                                                                      "Adagrad: where the sum of squares starts")
        .min(0),
    rule_key("optimizer.params.decoupled_weight_decay", kBool, "false",
             "NAdam, RAdam: weight decay apart from the gradient, as in AdamW"),
    key<&JobConfig::optimizer, &Optimizer::alpha>(
        "optimizer.params.alpha",
        "RMSprop: decay of the mean square; ASGD, whose default is 0.75: power of the decaying rate")
        .min(0),
    key<&JobConfig::optimizer, &Optimizer::centered>("optimizer.params.centered",
                                                     "RMSprop: divide by the variance instead of the mean square"),
    key<&JobConfig::optimizer, &Optimizer::momentum_decay>(
        "optimizer.params.momentum_decay",
        "NAdam: the momentum of step t is beta1 * (1 - 0.96^(t * momentum_decay) / 2)")
        .min(0),
    key<&JobConfig::optimizer, &Optimizer::rho>("optimizer.params.rho", "Adadelta: decay of the two averages")
        .min(0)
        .max(1),
    rule_key("optimizer.params.etas", kFloatList, "[0.5, 1.2]",
             "Rprop: factors of a step size after the gradient's sign changed, and after it did not")
        .above(0),
    rule_key("optimizer.params.step_sizes", kFloatList, "[1e-6, 50.0]", "Rprop: bounds of a step size").min(0),
    key<&JobConfig::optimizer, &Optimizer::lambd>("optimizer.params.lambd",
                                                  "ASGD: how fast the rate and the parameters decay")
        .min(0),
    key<&JobConfig::optimizer, &Optimizer::t0>("optimizer.params.t0", "ASGD: the step after which it averages").min(0),
    key<&JobConfig::optimizer, &Optimizer::eps1>(
        "optimizer.params.eps1",
        "Adafactor: smallest mean square's root; null: 2^-23, as in torch for fp32 (eps[0] there)")
        .min(0),
    key<&JobConfig::optimizer, &Optimizer::eps2>(
        "optimizer.params.eps2", "Adafactor: smallest size of a parameter that scales its steps (eps[1] in torch)")
        .min(0),
    key<&JobConfig::optimizer, &Optimizer::beta2_decay>(
        "optimizer.params.beta2_decay", "Adafactor: the share of step t in the mean squares is t^beta2_decay")
        .max(0),
    key<&JobConfig::optimizer, &Optimizer::clip_threshold>("optimizer.params.d",
                                                           "Adafactor: largest root mean square of an update")
        .min(1),
    key<&JobConfig::optimizer, &Optimizer::min_8bit_size>(
        "optimizer.params.min_8bit_size", "AdamW8bit: parameters with fewer elements keep their moments in fp32")
        .min(0),
    key<&JobConfig::optimizer, &Optimizer::freeze_step>(
        "optimizer.params.freeze_step",
        "OneBitAdam, OneBitLamb: steps with averaged gradients, before the ones that exchange the momentum in one bit")
        .min(1),
    key<&JobConfig::optimizer, &Optimizer::coeff_beta>(
        "optimizer.params.coeff_beta", "OneBitLamb: decay of the average of trust ratios that is kept from the warm-up")
        .min(0)
        .below(1),
    key<&JobConfig::optimizer, &Optimizer::factor_max>("optimizer.params.factor_max",
                                                       "OneBitLamb: largest factor of a kept trust ratio")
        .min(0),
    key<&JobConfig::optimizer, &Optimizer::factor_min>("optimizer.params.factor_min",
                                                       "OneBitLamb: smallest factor of a kept trust ratio")
        .min(0),
    key<&JobConfig::optimizer, &Optimizer::factor_threshold>("optimizer.params.factor_threshold",
                                                             "OneBitLamb: largest relative change of it in a step")
        .min(0),
    key<&JobConfig::optimizer, &Optimizer::var_freeze_step>("optimizer.params.var_freeze_step",
                                                            "ZeroOneAdam: last step that may change the variance")
        .min(1),
    key<&JobConfig::optimizer, &Optimizer::var_update_scaler>(
        "optimizer.params.var_update_scaler",
        "ZeroOneAdam: changes of the variance after which the interval between them doubles")
        .min(1),
    key<&JobConfig::optimizer, &Optimizer::local_step_scaler>(
        "optimizer.params.local_step_scaler",
        "ZeroOneAdam: steps after which the interval between exchanges doubles, once the variance is fixed")
        .min(1),
    key<&JobConfig::optimizer, &Optimizer::local_step_clipper>("optimizer.params.local_step_clipper",
                                                               "ZeroOneAdam: longest interval between exchanges")
        .min(1),
    key<&JobConfig::optimizer, &Optimizer::muon_lr>("optimizer.params.muon_lr",
                                                    "Muon: learning rate of the matrices; null: lr, or 0.02")
        .unset()
        .min(0),
    rule_key("optimizer.params.adam_lr", kFloat, "null",
             "Muon: learning rate of all other parameters; null: lr, or 0.0003")
        .min(0),
    key<&JobConfig::optimizer, &Optimizer::eps_inside_sqrt>("optimizer.params.eps_inside_sqrt",
                                                            "Lamb: eps is added under the square root"),
    key<&JobConfig::optimizer, &Optimizer::max_coeff>("optimizer.params.max_coeff", "Lamb: largest trust ratio").min(0),
    key<&JobConfig::optimizer, &Optimizer::min_coeff>("optimizer.params.min_coeff", "Lamb: smallest trust ratio")
        .min(0),

    section("scheduler"),
    key_as<EnumMember<kSchedulerTypes>, &JobConfig::scheduler, &Scheduler::type>(
        "scheduler.type", "how the learning rate changes over the steps; null: it does not")
        .later("StepLR|MultiStepLR|ConstantLR|LinearLR|ExponentialLR|PolynomialLR|CosineAnnealingLR|"
               "CosineAnnealingWarmRestarts|CyclicLR|OneCycleLR|ReduceLROnPlateau"),
    section("scheduler.params"),
    key<&JobConfig::scheduler, &Scheduler::warmup_min_lr>("scheduler.params.warmup_min_lr",
                                                          "learning rate at the start of the warm-up")
        .min(0),
    key<&JobConfig::scheduler, &Scheduler::warmup_max_lr>(
        "scheduler.params.warmup_max_lr",
        "learning rate after the warm-up; null: the optimizer's (the default of WarmupDecayLR is 0.001)")
        .min(0),
    key<&JobConfig::scheduler, &Scheduler::warmup_num_steps>("scheduler.params.warmup_num_steps",
                                                             "steps of the warm-up")
        .min(0)
        .when_auto("0"),
    key_as<EnumMember<kWarmupTypes>, &JobConfig::scheduler, &Scheduler::warmup_type>("scheduler.params.warmup_type",
                                                                                     "shape of the warm-up"),
    key<&JobConfig::scheduler, &Scheduler::total_num_steps>("scheduler.params.total_num_steps", "where the decay ends")
        .min(1)
        .when_auto("late"),
    key<&JobConfig::scheduler, &Scheduler::warmup_min_ratio>("scheduler.params.warmup_min_ratio",
                                                             "WarmupCosineLR: start, as a part of the optimizer's rate")
        .min(0),
    key<&JobConfig::scheduler, &Scheduler::cos_min_ratio>("scheduler.params.cos_min_ratio",
                                                          "WarmupCosineLR: end, as a part of the optimizer's rate")
        .min(0),
    key<&JobConfig::scheduler, &Scheduler::range_min_lr>("scheduler.params.lr_range_test_min_lr",
                                                         "LRRangeTest: where the rate starts")
        .min(0),
    key<&JobConfig::scheduler, &Scheduler::range_step_size>("scheduler.params.lr_range_test_step_size",
                                                            "LRRangeTest: steps between increases")
        .min(1),
    key<&JobConfig::scheduler, &Scheduler::range_step_rate>(
        "scheduler.params.lr_range_test_step_rate", "LRRangeTest: what each increase adds, as a part of the start"),
    key<&JobConfig::scheduler, &Scheduler::range_staircase>(
        "scheduler.params.lr_range_test_staircase", "LRRangeTest: increase at once instead of a little each step"),
    key<&JobConfig::scheduler, &Scheduler::cycle_min_lr>("scheduler.params.cycle_min_lr",
                                                         "OneCycle: rate at both ends of the cycle")
        .unset()
        .min(0),
    key<&JobConfig::scheduler, &Scheduler::cycle_max_lr>("scheduler.params.cycle_max_lr",
                                                         "OneCycle: rate at the top of the cycle")
        .unset()
        .min(0),
    key<&JobConfig::scheduler, &Scheduler::decay_lr_rate>(
        "scheduler.params.decay_lr_rate",
        "OneCycle: after the cycle the rate is divided by 1 + decay_lr_rate * steps / decay_step_size")
        .min(0),
    key<&JobConfig::scheduler, &Scheduler::cycle_first_step_size>("scheduler.params.cycle_first_step_size",
                                                                  "OneCycle: steps up")
        .min(1),
    key<&JobConfig::scheduler, &Scheduler::cycle_second_step_size>("scheduler.params.cycle_second_step_size",
                                                                   "OneCycle: steps down; null: as many as up")
        .min(1),
    key<&JobConfig::scheduler, &Scheduler::decay_step_size>("scheduler.params.decay_step_size",
                                                            "OneCycle: steps of one decay; 0: no decay")
        .min(0),
    key<&JobConfig::scheduler, &Scheduler::cycle_momentum>(
        "scheduler.params.cycle_momentum",
        "OneCycle: move beta1 against the rate and set beta2 to 0.99; ignored by optimizers without betas"),
    key<&JobConfig::scheduler, &Scheduler::cycle_min_mom>("scheduler.params.cycle_min_mom",
                                                          "OneCycle: beta1 at the top of the cycle")
        .min(0)
        .below(1),
    key<&JobConfig::scheduler, &Scheduler::cycle_max_mom>("scheduler.params.cycle_max_mom",
                                                          "OneCycle: beta1 at both ends of the cycle")
        .min(0)
        .below(1),
    key<&JobConfig::scheduler, &Scheduler::decay_mom_rate>(
        "scheduler.params.decay_mom_rate",
        "OneCycle: after the cycle beta1 is multiplied by 1 + decay_mom_rate * steps / decay_step_size"),
};

}  // namespace

std::span<const KeySpec> optimizer_keys() {
  return kRows;
}

}  // namespace dslaunch::config
