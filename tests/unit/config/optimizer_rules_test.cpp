#include "config/rules.hpp"

#include <catch2/catch.hpp>
#include <tuple>

#include "load_support.hpp"

using namespace dslaunch::config;
using Catch::Matchers::Contains;

TEST_CASE("optimizer names are known in any case", "[config][optimizer_rules]") {
  for (const char* name : {"AdamW", "adamw", "ADAMW"}) {
    CHECK(load("{optimizer: {type: \"" + std::string(name) + "\"}}").config.optimizer.type == OptimizerType::kAdamW);
  }
  CHECK(load("{optimizer: {type: \"sgd\"}}").config.optimizer.type == OptimizerType::kSgd);
  CHECK_THAT(only_line("{optimizer: {type: \"AdamV\"}}"),
             Contains("did you mean 'Adam' or 'AdamW'?") || Contains("did you mean 'AdamW'?"));
}

TEST_CASE("Adam decays like AdamW unless adam_w_mode is false", "[config][optimizer_rules]") {
  CHECK(load("{optimizer: {type: \"Adam\"}}").config.optimizer.decoupled_weight_decay);
  CHECK_FALSE(
      load("{optimizer: {type: \"Adam\", params: {adam_w_mode: false}}}").config.optimizer.decoupled_weight_decay);
  CHECK(load("{optimizer: {type: \"AdamW\", params: {adam_w_mode: false}}}").config.optimizer.decoupled_weight_decay);
}

TEST_CASE("torch_adam is PyTorch's AdamW under both names, its Adam where adam_w_mode is false",
          "[config][optimizer_rules]") {
  for (const char* name : {"AdamW", "Adam"}) {
    auto torch =
        load("{optimizer: {type: \"" + std::string(name) + "\", params: {torch_adam: true}}}").config.optimizer;
    CHECK(torch.weight_decay == 0.01);
    CHECK(torch.decoupled_weight_decay);
  }
  auto adam = load("{optimizer: {type: \"Adam\", params: {torch_adam: true, adam_w_mode: false}}}").config.optimizer;
  CHECK(adam.weight_decay == 0);
  CHECK_FALSE(adam.decoupled_weight_decay);
  CHECK(load("{optimizer: {type: \"Adam\", params: {torch_adam: true, weight_decay: 0}}}")
            .config.optimizer.weight_decay == 0);
}

TEST_CASE("parameters reach the typed section", "[config][optimizer_rules]") {
  auto adam = load(
                  "{optimizer: {type: \"AdamW\", params: {lr: 1e-4, betas: [0.8, 0.95], eps: 1e-6, weight_decay: 0.1, "
                  "bias_correction: false}}}")
                  .config.optimizer;
  CHECK(adam.lr == 1e-4);
  CHECK(adam.beta1 == 0.8);
  CHECK(adam.beta2 == 0.95);
  CHECK(adam.eps == 1e-6);
  CHECK(adam.weight_decay == 0.1);
  CHECK_FALSE(adam.bias_correction);
  auto sgd =
      load("{optimizer: {type: \"SGD\", params: {momentum: 0.9, dampening: 0, nesterov: true}}}").config.optimizer;
  CHECK(sgd.momentum == 0.9);
  CHECK(sgd.nesterov);
}

TEST_CASE("an optimizer refuses parameters of another one", "[config][optimizer_rules]") {
  CHECK_THAT(only_line("{optimizer: {type: \"AdamW\", params: {momentum: 0.9}}}"),
             Contains("'optimizer.params.momentum' is not a parameter of AdamW; its parameters are lr, betas"));
  CHECK_THAT(only_line("{optimizer: {type: \"SGD\", params: {betas: [0.9, 0.9]}}}"),
             Contains("not a parameter of SGD"));
  CHECK_THAT(only_line("{optimizer: {type: \"AdamW\", params: {max_grad_norm: 1.0}}}"),
             Contains("set gradient_clipping"));
  CHECK_THAT(only_line("{optimizer: {type: \"SGD\", params: {nesterov: true}}}"), Contains("needs a momentum above 0"));
  CHECK_THAT(only_line("{optimizer: {type: \"SGD\", params: {momentum: 0.9, nesterov: true}, param_groups: {g: {match: "
                       "\"*\", momentum: 0}}}}"),
             Contains("'optimizer.param_groups.g.momentum'") && Contains("needs a momentum above 0"));
  CHECK_THAT(only_line("{optimizer: {type: \"Lion\", params: {eps: 1e-8}}}"), Contains("not a parameter of Lion"));
  CHECK_THAT(only_line("{optimizer: {type: \"Lamb\", params: {min_coeff: 2, max_coeff: 1}}}"),
             Contains("is above 'optimizer.params.max_coeff'"));
  CHECK_THAT(only_line("{optimizer: {type: \"MuAdam\"}}"), Contains("not supported yet"));
}

TEST_CASE("every optimizer has its own parameters and defaults", "[config][optimizer_rules]") {
  const auto adam = load("{optimizer: {type: \"Adam\", params: {amsgrad: true, maximize: true}}}").config.optimizer;
  CHECK(adam.amsgrad);
  CHECK(adam.maximize);
  const auto lion = load("{optimizer: {type: \"Lion\", params: {betas: [0.9, 0.99]}}}").config.optimizer;
  CHECK(lion.type == OptimizerType::kLion);
  CHECK(lion.beta2 == 0.99);
  CHECK(lion.lr == 1e-3);
  const auto adagrad = load("{optimizer: {type: \"Adagrad\", params: {lr_decay: 0.1}}}").config.optimizer;
  CHECK(adagrad.type == OptimizerType::kAdagrad);
  CHECK(adagrad.lr == 0.01);
  CHECK(adagrad.eps == 1e-10);
  CHECK(adagrad.lr_decay == 0.1);
  const auto lamb =
      load("{optimizer: {type: \"lamb\", params: {eps_inside_sqrt: true, max_coeff: 0.3}}}").config.optimizer;
  CHECK(lamb.type == OptimizerType::kLamb);
  CHECK(lamb.eps_inside_sqrt);
  CHECK(lamb.max_coeff == 0.3);
  CHECK(lamb.min_coeff == 0.01);
}

TEST_CASE("the optimizers of torch.optim have torch's parameters and defaults", "[config][optimizer_rules]") {
  const auto section = [](const char* type, const char* params = "") {
    return good("{optimizer: {type: \"" + std::string(type) + "\", params: {" + params + "}}}").optimizer;
  };
  const auto rmsprop = section("RMSprop"), all = section("rmsprop", "alpha: 0.9, momentum: 0.8, centered: true");
  CHECK(std::tuple(rmsprop.lr, rmsprop.alpha, rmsprop.eps, rmsprop.momentum, rmsprop.centered, rmsprop.weight_decay) ==
        std::tuple(0.01, 0.99, 1e-8, 0.0, false, 0.0));
  CHECK(std::tuple(all.alpha, all.momentum, all.centered) == std::tuple(0.9, 0.8, true));
  const auto nadam = section("NAdam");
  CHECK(std::tuple(nadam.lr, nadam.beta1, nadam.beta2, nadam.eps, nadam.momentum_decay, nadam.decoupled_weight_decay) ==
        std::tuple(2e-3, 0.9, 0.999, 1e-8, 4e-3, false));
  CHECK(section("NAdam", "decoupled_weight_decay: true").decoupled_weight_decay);
  const auto radam = section("RAdam");
  CHECK(std::tuple(radam.lr, radam.eps, radam.decoupled_weight_decay) == std::tuple(1e-3, 1e-8, false));
  CHECK(section("RAdam", "decoupled_weight_decay: true").decoupled_weight_decay);
  CHECK(section("Adamax").lr == 2e-3);
  const auto adadelta = section("Adadelta");
  CHECK(std::tuple(adadelta.lr, adadelta.rho, adadelta.eps) == std::tuple(1.0, 0.9, 1e-6));
  const auto rprop = section("Rprop"), own = section("Rprop", "etas: [0.6, 1.1], step_sizes: [0.1, 0.2]");
  CHECK(std::tuple(rprop.lr, rprop.eta_minus, rprop.eta_plus, rprop.min_step_size, rprop.max_step_size) ==
        std::tuple(0.01, 0.5, 1.2, 1e-6, 50.0));
  CHECK(std::tuple(own.eta_minus, own.eta_plus, own.min_step_size, own.max_step_size) ==
        std::tuple(0.6, 1.1, 0.1, 0.2));
  const auto adafactor = section("Adafactor"), set = section("Adafactor", "eps1: 1e-30, d: 2");
  CHECK(std::tuple(adafactor.lr, adafactor.beta2_decay, adafactor.eps2, adafactor.clip_threshold) ==
        std::tuple(0.01, -0.8, 1e-3, 1.0));
  CHECK_FALSE(adafactor.eps1);
  CHECK((set.eps1 == 1e-30 && set.clip_threshold == 2.0));
  const auto eight_bits = section("adamw_8bit"), small = section("AdamW8bit", "min_8bit_size: 0");
  CHECK(std::tuple(eight_bits.type, eight_bits.weight_decay, eight_bits.min_8bit_size, small.min_8bit_size) ==
        std::tuple(OptimizerType::kAdamW8bit, 0.01, 4096, 0));
  const auto asgd = section("ASGD");
  CHECK(std::tuple(asgd.lr, asgd.lambd, asgd.alpha, asgd.t0) == std::tuple(0.01, 1e-4, 0.75, 1e6));
}

TEST_CASE("parameters of torch's optimizers that make no sense are refused", "[config][optimizer_rules]") {
  const auto line = [](const char* type, const char* params) {
    return only_line("{optimizer: {type: \"" + std::string(type) + "\", params: {" + params + "}}}");
  };
  CHECK_THAT(line("Rprop", "etas: [0.5]"), Contains("'optimizer.params.etas' must be two numbers, not 1"));
  CHECK_THAT(line("Rprop", "etas: [1.2, 0.5]"), Contains("must be a number below 1 and one above 1"));
  CHECK_THAT(line("Rprop", "step_sizes: [2, 1]"), Contains("must be the smallest step size and the largest"));
  CHECK_THAT(line("Rprop", "weight_decay: 0.1"), Contains("is not a parameter of Rprop; its parameters are lr, etas"));
  CHECK_THAT(line("Adadelta", "rho: 1.5"), Contains("'optimizer.params.rho'"));
  CHECK_THAT(line("RMSprop", "betas: [0.9, 0.9]"), Contains("is not a parameter of RMSprop"));
  CHECK_THAT(only_line("{optimizer: {type: \"Rprop\"}, scheduler: {type: \"WarmupLR\"}}"),
             Contains("'scheduler.type' has no effect on Rprop"));
  CHECK_THAT(line("Adafactor", "eps: 1e-8"), Contains("its parameters are lr, beta2_decay, eps1, eps2"));
  CHECK_THAT(line("Adafactor", "d: 0.5"), Contains("'optimizer.params.d'"));
  CHECK_THAT(
      only_line(
          "{optimizer: {type: \"Adafactor\"}, zero_optimization: {stage: 1, offload_optimizer: {device: cpu\n}}}"),
      Contains("cannot be offloaded: its step needs the mean squares of whole rows and columns"));
  CHECK_THAT(only_line("{optimizer: {type: \"AdamW8bit\"}, tensor_parallel: {size: 2}}", 2),
             Contains("its blocks are"));
  CHECK_THAT(line("AdamW8bit", "amsgrad: true"), Contains("is not a parameter of AdamW8bit"));
  CHECK_THAT(line("RMSpro", ""), Contains("did you mean 'RMSprop'?"));
  CHECK_THAT(line("Nadma", ""), Contains("'NAdam'"));
  const auto untested = load("{zero_allow_untested_optimizer: true, optimizer: {type: \"RMSprop\"}}");
  CHECK(untested.ok());
  CHECK(has_note(untested, "zero_allow_untested_optimizer"));
}

TEST_CASE("optimizers that exchange one bit have DeepSpeed's parameters", "[config][optimizer_rules]") {
  const auto adam = load("{optimizer: {type: \"OneBitAdam\", params: {freeze_step: 7, comm_backend_name: \"mpi\"}}}");
  INFO(all_lines(adam));
  REQUIRE(adam.ok());
  CHECK(adam.config.optimizer.type == OptimizerType::kOneBitAdam);
  CHECK(adam.config.optimizer.freeze_step == 7);
  CHECK_FALSE(adam.config.optimizer.bias_correction);
  CHECK(has_note(adam, "comm_backend_name"));
  const auto lamb = load("{optimizer: {type: \"OneBitLamb\"}}").config.optimizer;
  CHECK(std::tuple(lamb.freeze_step, lamb.coeff_beta, lamb.factor_max, lamb.factor_min, lamb.factor_threshold) ==
        std::tuple(100000, 0.9, 4.0, 0.5, 0.1));
  const auto zero_one = load("{optimizer: {type: \"ZeroOneAdam\"}}").config.optimizer;
  CHECK(std::tuple(zero_one.var_freeze_step, zero_one.var_update_scaler, zero_one.local_step_scaler,
                   zero_one.local_step_clipper) == std::tuple(100000, 16, 32678, 16));
  CHECK(has_note(load("{optimizer: {type: \"ZeroOneAdam\", params: {bias_correction: true}}}"), "has no effect"));
}

TEST_CASE("what does not go with an exchange of one bit is refused", "[config][optimizer_rules]") {
  const auto line = [](const std::string& params, const std::string& more = "", int ranks = 1) {
    return only_line("{optimizer: {type: \"OneBitLamb\", params: {" + params + "}}" + more + "}", ranks);
  };
  CHECK_THAT(line("freeze_step: 0"), Contains("'optimizer.params.freeze_step'"));
  CHECK_THAT(line("amsgrad: true"), Contains("'optimizer.params.amsgrad' is rejected for OneBitLamb"));
  CHECK_THAT(line("factor_min: 5"), Contains("'optimizer.params.factor_min' is above 'optimizer.params.factor_max'"));
  CHECK_THAT(line("var_freeze_step: 5"), Contains("is not a parameter of OneBitLamb"));
  CHECK_THAT(line("", ", zero_optimization: {stage: 2}"), Contains("OneBitLamb needs ZeRO stage 0"));
  CHECK_THAT(line("", ", pipeline: {stages: 2}", 2), Contains("OneBitLamb does not go with 2 pipeline stages"));
  CHECK_THAT(line("", ", tensor_parallel: {size: 2}", 2), Contains("does not go with 2 tensor ranks"));
}

TEST_CASE("Muon has two learning rates", "[config][optimizer_rules]") {
  const auto plain = load("{optimizer: {type: \"Muon\"}}").config.optimizer;
  CHECK(plain.muon_lr == 0.02);
  CHECK(plain.lr == 3e-4);
  CHECK(plain.beta2 == 0.95);
  CHECK(plain.eps == 1e-10);
  CHECK(plain.momentum == 0.95);
  const auto one = load("{optimizer: {type: \"Muon\", params: {lr: 0.5, momentum: 0.9}}}").config.optimizer;
  CHECK(one.muon_lr == 0.5);
  CHECK(one.lr == 0.5);
  CHECK(one.momentum == 0.9);
  const auto both = load("{optimizer: {type: \"Muon\", params: {muon_lr: 0.1, adam_lr: 0.2}}}").config.optimizer;
  CHECK(both.muon_lr == 0.1);
  CHECK(both.lr == 0.2);
}

TEST_CASE("schedules get their own defaults", "[config][scheduler]") {
  auto warmup = load("{optimizer: {params: {lr: 0.5}}, scheduler: {type: \"WarmupLR\"}}").config.scheduler;
  CHECK(warmup.type == SchedulerType::kWarmupLR);
  CHECK(warmup.warmup_max_lr == 0.5);  // the optimizer's
  CHECK(warmup.warmup_num_steps == 1000);
  CHECK(warmup.warmup_type == WarmupType::kLog);
  auto decay =
      load("{optimizer: {params: {lr: 0.5}}, scheduler: {type: \"WarmupDecayLR\", params: {total_num_steps: 5000}}}")
          .config.scheduler;
  CHECK(decay.warmup_max_lr == 0.001);
  CHECK(decay.total_num_steps == 5000);
  auto null =
      load(
          "{optimizer: {params: {lr: 0.5}}, scheduler: {type: \"WarmupDecayLR\", params: {total_num_steps: 5000, "
          "warmup_max_lr: null}}}")
          .config.scheduler;
  CHECK(null.warmup_max_lr == 0.5);
  auto cosine = load(
      "{scheduler: {type: \"WarmupCosineLR\", params: {total_num_steps: 50, warmup_num_steps: [10], "
      "warmup_type: \"linear\"}}}");
  CHECK_FALSE(cosine.ok());  // an integer is no list
  cosine = load(
      "{scheduler: {type: \"WarmupCosineLR\", params: {total_num_steps: 50, warmup_num_steps: 10, "
      "warmup_type: \"linear\", cos_min_ratio: [0.1]}}}");
  REQUIRE(cosine.ok());
  CHECK(cosine.config.scheduler.warmup_type == WarmupType::kLinear);
  CHECK(cosine.config.scheduler.cos_min_ratio == 0.1);
}

TEST_CASE("schedules refuse what they do not take and miss what they need", "[config][scheduler]") {
  CHECK_THAT(only_line("{scheduler: {type: \"WarmupDecayLR\"}}"), Contains("needs scheduler.params.total_num_steps"));
  CHECK_THAT(only_line("{scheduler: {params: {warmup_num_steps: 3}}}"), Contains("needs 'scheduler.type'"));
  CHECK_THAT(only_line("{scheduler: {type: \"WarmupLR\", params: {total_num_steps: 9}}}"),
             Contains("'scheduler.params.total_num_steps' is not a parameter of WarmupLR"));
  CHECK_THAT(only_line("{scheduler: {type: \"WarmupLR\", params: {warmup_min_lr: [0, 1]}}}"),
             Contains("has 2 values, but the optimizer has 1 parameter group:"));
  CHECK_THAT(only_line("{scheduler: {type: \"OneCycle\", params: {cycle_min_lr: 0.1}}}"),
             Contains("OneCycle needs scheduler.params.cycle_max_lr"));
  CHECK_THAT(only_line("{scheduler: {type: \"WarmupLR\", params: {warmup_type: \"cosine\"}}}"),
             Contains("must be log or linear"));
  CHECK_THAT(only_line("{scheduler: {type: \"WarmupCosineLR\", params: {total_num_steps: 2, warmup_num_steps: 1}}}"),
             Contains("so the cosine has no steps"));
  auto early = load("{scheduler: {type: \"WarmupDecayLR\", params: {total_num_steps: 10}}}");
  CHECK(early.ok());
  CHECK(has_note(early, "the rate never decays"));
}

// DeepSpeed takes a type that is none of its own from torch.optim.lr_scheduler.
TEST_CASE("a schedule of PyTorch is not supported yet, a misspelled one is said once", "[config][optimizer_rules]") {
  CHECK_THAT(
      only_line("{scheduler: {type: \"CosineAnnealingLR\"}}"),
      Contains("not supported yet: 'scheduler.type' = CosineAnnealingLR") && Contains("supported now: WarmupLR"));
  CHECK_THAT(only_line("{scheduler: {type: \"WarmupL\", params: {warmup_num_steps: 3}}}"),
             Contains("did you mean 'WarmupLR'?"));
}

TEST_CASE("DeepSpeed's schedules take the index they begin at, here its default only", "[config][scheduler]") {
  for (const char* rest :
       {"type: \"WarmupLR\", params: {", "type: \"WarmupDecayLR\", params: {total_num_steps: 9, ",
        "type: \"WarmupCosineLR\", params: {total_num_steps: 5000, ", "type: \"LRRangeTest\", params: {",
        "type: \"OneCycle\", params: {cycle_min_lr: 0.1, cycle_max_lr: 0.2, "}) {
    const std::string scheduler = std::string("{scheduler: {") + rest + "last_batch_iteration: ";
    CHECK(load(scheduler + "-1}}}").ok());
    CHECK_THAT(only_line(scheduler + "7}}}"),
               Contains("not supported yet: 'scheduler.params.last_batch_iteration' = 7"));
  }
}

TEST_CASE("LRRangeTest and OneCycle reach the typed section", "[config][scheduler]") {
  const auto range = load(
                         "{scheduler: {type: \"LRRangeTest\", params: {lr_range_test_min_lr: 0.1, "
                         "lr_range_test_step_size: 5, lr_range_test_step_rate: 2, lr_range_test_staircase: true}}}")
                         .config.scheduler;
  CHECK(range.type == SchedulerType::kLRRangeTest);
  CHECK(range.range_min_lr == 0.1);
  CHECK(range.range_step_size == 5);
  CHECK(range.range_step_rate == 2.0);
  CHECK(range.range_staircase);
  const auto cycle = load(
                         "{scheduler: {type: \"OneCycle\", params: {cycle_min_lr: 0.1, cycle_max_lr: 0.2, "
                         "cycle_first_step_size: 7, decay_step_size: 3, decay_lr_rate: 0.5, cycle_max_mom: 0.95}}}")
                         .config.scheduler;
  CHECK(cycle.type == SchedulerType::kOneCycle);
  CHECK(cycle.cycle_max_lr == 0.2);
  CHECK(cycle.cycle_first_step_size == 7);
  CHECK_FALSE(cycle.cycle_second_step_size.has_value());
  CHECK(cycle.decay_step_size == 3);
  CHECK(cycle.cycle_momentum);
  CHECK(cycle.cycle_max_mom == 0.95);
}

TEST_CASE("OneCycle leaves the momentum of optimizers without betas alone", "[config][scheduler]") {
  const std::string cycle = ", scheduler: {type: \"OneCycle\", params: {cycle_min_lr: 0.1, cycle_max_lr: 0.2}}}";
  for (const char* type : {"SGD", "Adagrad", "Muon", "NAdam", "RMSprop"}) {
    const auto result = load("{optimizer: {type: \"" + std::string(type) + "\"}" + cycle);
    REQUIRE(result.ok());
    CHECK_FALSE(result.config.scheduler.cycle_momentum);
    CHECK(has_note(result, "momentum cycling is off"));
  }
  for (const char* type : {"Adam", "Lamb", "Lion", "RAdam", "Adamax"}) {
    const auto result = load("{optimizer: {type: \"" + std::string(type) + "\"}" + cycle);
    REQUIRE(result.ok());
    CHECK(result.config.scheduler.cycle_momentum);
  }
}

TEST_CASE("total_num_steps auto takes the steps of the run where no end of the data can come first",
          "[config][scheduler]") {
  const std::string text =
      "{scheduler: {type: \"WarmupCosineLR\", params: {total_num_steps: \"auto\", warmup_num_steps: 5}}, "
      "train: {steps: 77}}";
  const auto total = [&](std::vector<Override> options) {
    return load(text, 1, options).config.scheduler.total_num_steps;
  };
  CHECK(total({}) == 77);
  CHECK(total({{"train.steps", "99"}}) == 99);
  CHECK_FALSE(total({{"train.epochs", "1"}}));
  CHECK_FALSE(total({{"train.steps", "null"}}));
}

TEST_CASE("optimizers are known by their names in DeepSpeed's and transformers' code", "[config][optimizer_rules]") {
  for (const char* name : {"FusedAdam", "DeepSpeedCPUAdam", "fusedadam"}) {
    auto result = load("{optimizer: {type: \"" + std::string(name) + "\", params: {learning_rate: 2e-4}}}");
    INFO(all_lines(result));
    REQUIRE(result.ok());
    CHECK(result.config.optimizer.type == OptimizerType::kAdam);
    CHECK(result.config.optimizer.lr == 2e-4);
    CHECK(num_notes(result, std::string(name) + " is Adam here") == 1);
    CHECK(num_notes(result, "'optimizer.params.learning_rate' is 'optimizer.params.lr' here") == 1);
  }
  CHECK(load("{optimizer: {type: \"adamw_torch\"}}").config.optimizer.type == OptimizerType::kAdamW);
  CHECK_THAT(only_line("{optimizer: {type: \"AdamX\"}}"), !Contains("MuAdam") && Contains("Muon"));
}

TEST_CASE("transformers' names of schedules stand for those of its DeepSpeed integration",
          "[config][optimizer_rules]") {
  const std::string start = "{optimizer: {params: {lr: 0.25}}, train: {steps: 20}, scheduler: {type: ";
  const auto linear = load(start + "linear\n params: {warmup_steps: 4}}}");
  INFO(all_lines(linear));
  REQUIRE(linear.ok());
  CHECK(linear.config.scheduler.type == SchedulerType::kWarmupDecayLR);
  CHECK(linear.config.scheduler.warmup_type == WarmupType::kLinear);
  CHECK(linear.config.scheduler.warmup_max_lr->values.front() == 0.25);
  CHECK(linear.config.scheduler.warmup_min_lr.values.front() == 0);
  CHECK(linear.config.scheduler.warmup_num_steps == 4);
  CHECK(linear.config.scheduler.total_num_steps == 20);
  CHECK(num_notes(linear, "linear is WarmupDecayLR here") == 1);
  const auto cosine = good(start + "cosine\n}}").scheduler;
  CHECK(cosine.type == SchedulerType::kWarmupCosineLR);
  CHECK(cosine.warmup_num_steps == 0);
  CHECK(cosine.warmup_min_ratio.values.front() == 1);
  CHECK(cosine.cos_min_ratio.values.front() == 0);
  const auto flat = good(start + "constant_with_warmup\n}}").scheduler;
  CHECK(flat.type == SchedulerType::kWarmupLR);
  CHECK(flat.warmup_min_lr.values.front() == 0.25);
  CHECK(good(start + "constant\n}}").scheduler.type == SchedulerType::kNone);
  // Without a number of steps the worker knows the total.
  const auto late = load("{optimizer: {params: {lr: 0.25}}, scheduler: {type: linear\n}}");
  REQUIRE(late.ok());
  CHECK_FALSE(late.config.scheduler.total_num_steps);
}
