#include "config/optimizer_rules.hpp"

#include <catch2/catch.hpp>

#include "load_support.hpp"

using namespace dslaunch::config;
using Catch::Matchers::Contains;

namespace {

std::string only_line(const std::string& text) {
  auto result = load(text);
  INFO(all_lines(result));
  REQUIRE(result.issues.size() == 1);
  return lines_of(result).front();
}

}  // namespace

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
  auto torch = load("{optimizer: {type: \"AdamW\", params: {torch_adam: true}}}").config.optimizer;
  CHECK(torch.weight_decay == 0.01);
  CHECK(torch.decoupled_weight_decay);
  CHECK_FALSE(
      load("{optimizer: {type: \"Adam\", params: {torch_adam: true}}}").config.optimizer.decoupled_weight_decay);
}

TEST_CASE("parameters reach the typed section", "[config][optimizer_rules]") {
  auto adam = load(
                  "{optimizer: {type: \"AdamW\", params: {lr: 1e-4, betas: [0.8, 0.95], eps: 1e-6, weight_decay: 0.1, "
                  "bias_correction: false}}}")
                  .config.optimizer;
  CHECK(adam.given);
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
             Contains("'optimizer.params.momentum' is no parameter of AdamW; it takes lr, betas"));
  CHECK_THAT(only_line("{optimizer: {type: \"SGD\", params: {betas: [0.9, 0.9]}}}"), Contains("no parameter of SGD"));
  CHECK_THAT(only_line("{optimizer: {type: \"AdamW\", params: {max_grad_norm: 1.0}}}"),
             Contains("write gradient_clipping"));
  CHECK_THAT(only_line("{optimizer: {type: \"SGD\", params: {nesterov: true}}}"), Contains("needs a momentum above 0"));
  CHECK_THAT(only_line("{optimizer: {type: \"AdamW\", params: {amsgrad: true}}}"), Contains("not supported yet"));
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
             Contains("'scheduler.params.total_num_steps' is no parameter of WarmupLR"));
  CHECK_THAT(only_line("{scheduler: {type: \"WarmupLR\", params: {warmup_min_lr: [0, 1]}}}"),
             Contains("has 2 values, but a job has one parameter group"));
  CHECK_THAT(only_line("{scheduler: {type: \"WarmupLR\", params: {warmup_type: \"cosine\"}}}"),
             Contains("must be log or linear"));
  CHECK_THAT(only_line("{scheduler: {type: \"WarmupCosineLR\", params: {total_num_steps: 2, warmup_num_steps: 1}}}"),
             Contains("leaves the cosine no length"));
  auto early = load("{scheduler: {type: \"WarmupDecayLR\", params: {total_num_steps: 10}}}");
  CHECK(early.ok());
  CHECK(has_note(early, "the rate never decays"));
}

TEST_CASE("total_num_steps auto takes the steps of the run where they are known", "[config][scheduler]") {
  const std::string text =
      "{scheduler: {type: \"WarmupCosineLR\", params: {total_num_steps: \"auto\", warmup_num_steps: 5}}, "
      "train: {steps: 77}}";
  CHECK(load(text).config.scheduler.total_num_steps == 77);
  CHECK(load_text(text, "x", Format::kHjson, {}, {1, 88}).config.scheduler.total_num_steps == 88);
  CHECK(load(text, 1, {{"train.steps", "99"}}).config.scheduler.total_num_steps == 99);
}
