#include "config/rules.hpp"

#include <catch2/catch.hpp>
#include <limits>

#include "load_support.hpp"

using namespace dslaunch::config;
using Catch::Matchers::Contains;

TEST_CASE("fp16 brings DeepSpeed's dynamic loss scale", "[config][precision_rules]") {
  auto config = good("{fp16: {enabled: true}, zero_optimization: {stage: 1}}");
  CHECK(config.precision == Precision::kFp16);
  CHECK(config.loss_scale.kind == LossScaleKind::kDynamic);
  CHECK(config.loss_scale.initial == 65536);
  CHECK(config.loss_scale.window == 1000);
  CHECK(config.loss_scale.hysteresis == 2);
  CHECK(config.loss_scale.minimum == 1);
  CHECK(config.loss_scale.maximum == std::numeric_limits<double>::infinity());
  CHECK_FALSE(config.loss_scale.consecutive_hysteresis);
  CHECK(config.loss_scale.late_growth);
  CHECK(config.keep_batch_norm);
  CHECK(config.fp32_master);
  CHECK_FALSE(config.autocast.has_value());
}

TEST_CASE("every key of the loss scale reaches it", "[config][precision_rules]") {
  auto scale = good(
                   "{fp16: {enabled: true, initial_scale_power: 32, loss_scale_window: 7, hysteresis: 3, "
                   "consecutive_hysteresis: true, min_loss_scale: 16}, zero_optimization: {stage: 1}}")
                   .loss_scale;
  CHECK(scale.initial == 4294967296.0);
  CHECK(scale.window == 7);
  CHECK(scale.hysteresis == 3);
  CHECK(scale.consecutive_hysteresis);
  CHECK(scale.minimum == 16);
}

TEST_CASE("stage 0 has no hysteresis", "[config][precision_rules]") {
  auto scale =
      good("{fp16: {enabled: true, hysteresis: 4, consecutive_hysteresis: true, min_loss_scale: 16}}").loss_scale;
  CHECK(scale.hysteresis == 1);
  CHECK_FALSE(scale.consecutive_hysteresis);
  CHECK(scale.minimum == 16);
}

TEST_CASE("a loss scale that is given is static", "[config][precision_rules]") {
  auto scale = good("{fp16: {enabled: true, loss_scale: 128.5}, zero_optimization: {stage: 1}}").loss_scale;
  CHECK(scale.kind == LossScaleKind::kStatic);
  CHECK(scale.initial == 128.5);
}

TEST_CASE("without fp16 nothing is scaled, whatever the section holds", "[config][precision_rules]") {
  for (const char* text : {"{}", "{fp16: {enabled: false, loss_scale: 128}}", "{bf16: {enabled: true}}",
                           "{fp16: {enabled: \"auto\", loss_scale: 0}}", "{amp: {enabled: true, opt_level: \"O0\"}}",
                           "{torch_autocast: {enabled: true, dtype: \"bfloat16\"}}"}) {
    INFO(text);
    CHECK(good(text).loss_scale.kind == LossScaleKind::kNone);
  }
}

TEST_CASE("apex's levels", "[config][precision_rules]") {
  auto o0 = good("{amp: {enabled: true, opt_level: \"O0\"}}");
  CHECK(o0.precision == Precision::kFp32);
  CHECK_FALSE(o0.autocast.has_value());

  auto o1 = good("{amp: {enabled: true}}");
  CHECK(o1.precision == Precision::kFp32);
  CHECK(o1.autocast == ScalarType::kFp16);
  CHECK(o1.loss_scale.kind == LossScaleKind::kDynamic);
  CHECK(o1.loss_scale.initial == 65536);
  CHECK(o1.loss_scale.window == 2000);
  CHECK(o1.loss_scale.maximum == 16777216);
  CHECK_FALSE(o1.loss_scale.late_growth);

  auto o2 = good("{amp: {enabled: true, opt_level: \"O2\", loss_scale: 128, keep_batchnorm_fp32: false}}");
  CHECK(o2.precision == Precision::kFp16);
  CHECK(o2.loss_scale.kind == LossScaleKind::kStatic);
  CHECK(o2.loss_scale.initial == 128);
  CHECK_FALSE(o2.keep_batch_norm);
  CHECK(o2.fp32_master);

  auto o3 = good("{amp: {enabled: true, opt_level: \"O3\"}}");
  CHECK(o3.precision == Precision::kFp16);
  CHECK(o3.loss_scale.kind == LossScaleKind::kStatic);
  CHECK(o3.loss_scale.initial == 1);
  CHECK_FALSE(o3.keep_batch_norm);
  CHECK_FALSE(o3.fp32_master);

  auto mixed = good(
      "{amp: {enabled: true, opt_level: \"O3\", loss_scale: \"dynamic\", keep_batchnorm_fp32: true, "
      "min_loss_scale: 4}}");
  CHECK(mixed.loss_scale.kind == LossScaleKind::kDynamic);
  CHECK(mixed.loss_scale.minimum == 4);
  CHECK(mixed.keep_batch_norm);
  CHECK(good("{amp: {enabled: true, loss_scale: \"64.0\"}}").loss_scale.initial == 64);
}

TEST_CASE("a level or a scale that apex does not know is an error", "[config][precision_rules]") {
  CHECK_THAT(all_lines(load("{amp: {enabled: true, opt_level: \"O4\"}}")), Contains("O0, O1, O2 or O3"));
  for (const char* scale : {"\"dynamics\"", "0", "-1", "\"nan\"", "[1]", "true"}) {
    INFO(scale);
    CHECK_THAT(all_lines(load(std::string("{amp: {enabled: true, loss_scale: ") + scale + "}}")),
               Contains("'amp.loss_scale' must be \"dynamic\" or a number above 0"));
  }
}

TEST_CASE("torch_autocast computes in the named type, fp16 with a scale", "[config][precision_rules]") {
  for (const char* name : {"bfloat16", "torch.bfloat16", "bf16"}) {
    auto config = good(std::string("{torch_autocast: {enabled: true, dtype: \"") + name + "\"}}");
    CHECK(config.autocast == ScalarType::kBf16);
    CHECK(config.loss_scale.kind == LossScaleKind::kNone);
    CHECK(config.precision == Precision::kFp32);
  }
  for (const char* name : {"float16", "torch.float16", "fp16", "half"}) {
    auto config = good(std::string("{torch_autocast: {enabled: true, dtype: \"") + name + "\"}}");
    CHECK(config.autocast == ScalarType::kFp16);
    CHECK(config.loss_scale.kind == LossScaleKind::kDynamic);
    CHECK(config.loss_scale.window == 2000);
  }
  CHECK(good("{torch_autocast: {enabled: true}}").autocast == ScalarType::kBf16);
}

TEST_CASE("one precision at a time", "[config][precision_rules]") {
  CHECK_THAT(all_lines(load("{fp16: {enabled: true}, bf16: {enabled: true}}")),
             Contains("fp16 and bf16 are both enabled"));
  CHECK_THAT(all_lines(load("{fp16: {enabled: true}, amp: {enabled: true}}")),
             Contains("fp16 and amp are both enabled"));
  CHECK_THAT(all_lines(load("{bf16: {enabled: true}, torch_autocast: {enabled: true}}")),
             Contains("bf16 and torch_autocast are both enabled"));
  CHECK(load("{fp16: {enabled: true}, bf16: {enabled: false}, amp: {enabled: false}}").ok());
}

TEST_CASE("tf32 is PyTorch's default unless it is given", "[config][precision_rules]") {
  CHECK_FALSE(good("{}").tf32.has_value());
  CHECK(good("{tf32: true}").tf32 == true);
  CHECK(good("{tf32: false}").tf32 == false);
}

TEST_CASE("gradients are summed and sent in any of three types", "[config][precision_rules]") {
  CHECK(good("{communication_data_type: \"fp16\"}").communication_data_type == ScalarType::kFp16);
  CHECK(good("{data_types: {grad_accum_dtype: \"fp16\"}}").grad_accum_dtype == ScalarType::kFp16);
  CHECK_FALSE(good("{data_types: {grad_accum_dtype: null}}").grad_accum_dtype.has_value());
}

// The names of DtypeEnum in deepspeed/runtime/config.py, which get_data_types looks grad_accum_dtype up in.
TEST_CASE("grad_accum_dtype has all of DeepSpeed's names for a type", "[config][precision_rules]") {
  const std::pair<ScalarType, std::vector<std::string>> types[] = {
      {ScalarType::kFp32, {"fp32", "float32", "torch.float32", "float"}},
      {ScalarType::kBf16, {"bf16", "bfloat16", "torch.bfloat16"}},
      {ScalarType::kFp16, {"fp16", "float16", "torch.float16", "half"}}};
  for (const auto& [type, names] : types) {
    for (const auto& name : names) {
      INFO(name);
      CHECK(good("{data_types: {grad_accum_dtype: \"" + name + "\"}}").grad_accum_dtype == type);
    }
  }
  CHECK_THAT(all_lines(load("{data_types: {grad_accum_dtype: \"int8\"}}")), Contains("must be fp32, bf16, fp16"));
}

TEST_CASE("fp8 has torchao's recipes, tensorwise unless one is given", "[config][precision_rules]") {
  const auto recipe_of = [](const std::string& fp8) { return good("{bf16: {enabled: true}, fp8: {" + fp8 + "}}").fp8; };
  CHECK_FALSE(good("{bf16: {enabled: true}}").fp8.has_value());
  CHECK_FALSE(recipe_of("enabled: false").has_value());
  CHECK(recipe_of("enabled: true") == Fp8Recipe::kTensorwise);
  CHECK(recipe_of("enabled: true, recipe: \"tensorwise\"") == Fp8Recipe::kTensorwise);
  CHECK(recipe_of("enabled: true, recipe: \"rowwise\"") == Fp8Recipe::kRowwise);
  CHECK(recipe_of("enabled: true, recipe: \"rowwise_with_gw_hp\"") == Fp8Recipe::kRowwiseWithGwHp);
  CHECK(good("{bf16: {enabled: \"auto\"}, fp8: {enabled: true}}").fp8 == Fp8Recipe::kTensorwise);
}

TEST_CASE("fp8 says what it needs, and what it does not have", "[config][precision_rules]") {
  const std::string bf16 = "bf16: {enabled: true}, ";
  const std::pair<std::string, std::string> cases[] = {
      {"{fp8: {enabled: true}}", "needs \"bf16\": {\"enabled\": true}"},
      {"{fp16: {enabled: true}, fp8: {enabled: true}}", "needs \"bf16\": {\"enabled\": true}"},
      {"{torch_autocast: {enabled: true}, fp8: {enabled: true}}", "needs \"bf16\": {\"enabled\": true}"},
      {"{" + bf16 + "fp8: {enabled: true, recipe: \"delayed\"}}", "maxima of earlier steps"},
      {"{" + bf16 + "fp8: {enabled: true, amax_history_len: 16}}", "maxima of earlier steps"},
      {"{" + bf16 + "fp8: {enabled: true, recipe: \"rowise\"}}", "rowwise"},
      {"{" + bf16 + "fp8: {enabled: true}, tensor_parallel: {size: 2}}", "does not go with 2 tensor ranks"}};
  for (const auto& [text, expected] : cases) CHECK_THAT(all_lines(load(text)), Contains(expected));
  CHECK(has_note(load("{" + bf16 + "fp8: {recipe: \"rowwise\"}}"), "has no effect: fp8.enabled is false"));
}
