#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "load_support.hpp"

using namespace dslaunch;
using namespace dslaunch::config;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

LoadResult with(const std::string& text, const std::vector<Override>& overrides) {
  return load(text, 1, overrides);
}

}  // namespace

TEST_CASE("the command line wins over the file", "[config][override]") {
  auto result = with("{train: {steps: 5}, zero_optimization: {stage: 0}, loss: \"mse\"}",
                     {{"train.steps", "9"},
                      {"zero_optimization.stage", "1"},
                      {"loss", "cross_entropy"},
                      {"optimizer.params.betas", "[0.5, 0.6]"},
                      {"data.train", "my file, really.npz"},
                      {"data.inputs", "a, b"},
                      {"data.labels", "c"},
                      {"bf16.enabled", "true"},
                      {"steps_per_print", "1e3"},
                      {"train.steps", "10"}});
  INFO(all_lines(result));
  REQUIRE(result.ok());
  CHECK(result.config.train.steps == 10);  // the last one
  CHECK(result.config.zero.stage == 1);
  CHECK(result.config.loss == "cross_entropy");
  CHECK(result.config.optimizer.beta2 == 0.6);
  CHECK(result.config.data.train == std::vector<std::string>{"my file, really.npz"});
  CHECK(result.config.data.inputs == std::vector<std::string>{"a", "b"});
  CHECK(result.config.data.labels == std::vector<std::string>{"c"});
  CHECK(result.config.precision == Precision::kBf16);
  CHECK(result.config.steps_per_print == 1000);
  CHECK(result.settings.at("train.steps").origin == "command line");
  CHECK(result.settings.at("loss").position.line == 0);
}

TEST_CASE("a value that the command line replaces need not be right", "[config][override]") {
  const std::string text = "{zero_optimization: {stage: \"tow\", reduce_bucket_size: -1}, train_batch_size: 2}";
  const auto result = with(text, {{"zero_optimization.stage", "2"}});
  REQUIRE(result.issues.size() == 1);
  CHECK_THAT(result.issues[0].message, Catch::Matchers::Contains("reduce_bucket_size"));
  CHECK(with(text, {{"zero_optimization.stage", "2"}, {"zero_optimization.reduce_bucket_size", "5"}}).ok());
  CHECK_FALSE(with(text, {{"zero_optimization.stage", "7"}, {"zero_optimization.reduce_bucket_size", "5"}}).ok());
}

TEST_CASE("a list whose quotes the shell took away is still a list", "[config][override]") {
  auto result = with("{}", {{"data.inputs", "[a, b]"},
                            {"data.labels", "[c]"},
                            {"data.train", "[one.npz,two.npz]"},
                            {"units", "[\"Block\"]"}});
  INFO(all_lines(result));
  REQUIRE(result.ok());
  CHECK(result.config.data.inputs == std::vector<std::string>{"a", "b"});
  CHECK(result.config.data.labels == std::vector<std::string>{"c"});
  CHECK(result.config.data.train == std::vector<std::string>{"one.npz", "two.npz"});
  CHECK(result.config.units == std::vector<std::string>{"Block"});
}

TEST_CASE("null on the command line takes a value back", "[config][override]") {
  auto result =
      with("{train: {steps: 5}, init: {std: 1}, loss: \"mse\", zero_optimization: {offload_param: {device: \"cpu\"}}}",
           {{"train.steps", "null"}, {"init", "null"}, {"loss", "null"}, {"zero_optimization.offload_param", "null"}});
  INFO(all_lines(result));
  REQUIRE(result.ok());
  CHECK_FALSE(result.config.train.steps);
  CHECK_FALSE(result.config.init);
  CHECK(result.config.loss.empty());
}

TEST_CASE("null on the command line takes a key back whose default is no null", "[config][override]") {
  auto result = with("{zero_optimization: {stage: 2, stage3_prefetch_bucket_size: 7}, optimizer: {params: {lr: 1}}}",
                     {{"zero_optimization.stage", "null"},
                      {"zero_optimization.prefetch_bucket_size", "null"},
                      {"optimizer.params.lr", "null"},
                      {"data.shuffle", "null"}});
  INFO(all_lines(result));
  REQUIRE(result.ok());
  CHECK(result.config.zero.stage == 0);
  CHECK(*result.config.zero.prefetch_bucket_size == 50'000'000);
  CHECK(result.config.optimizer.lr == 1e-3);
  CHECK(result.config.data.shuffle);
}

TEST_CASE("whole sections and names of one's own can be set", "[config][override]") {
  auto result = with("{data: {synthetic: {old: {shape: [1]}}}}",
                     {{"data.synthetic", "{x: {shape: [4], dtype: \"int64\", low: 0, high: 9}}"},
                      {"data.synthetic.x.high", "11"},
                      {"data.synthetic.y.like", "x"},
                      {"init.std", "0.5"}});
  INFO(all_lines(result));
  REQUIRE(result.ok());
  REQUIRE(result.config.data.synthetic.size() == 2);
  CHECK(result.config.data.synthetic[0].name == "x");
  CHECK(result.config.data.synthetic[0].high == 11);
  CHECK(result.config.data.synthetic[1].like == "x");
  CHECK(result.config.init->std == 0.5);
}

TEST_CASE("errors of the command line name it, not the file", "[config][override]") {
  auto line = [](const Override& option) {
    auto result = with("{\"train\": {\"steps\": 5}}", {option});
    INFO(all_lines(result));
    REQUIRE(result.issues.size() == 1);
    return lines_of(result)[0];
  };
  CHECK(line({"gradient_clipp1ng", "1"}) ==
        "command line: unknown key 'gradient_clipp1ng' (did you mean 'gradient_clipping'?)");
  CHECK(line({"zero_optimisation.stage", "1"}) ==
        "command line: unknown key 'zero_optimisation' (did you mean 'zero_optimization'?)");
  CHECK(line({"train.steps", "many"}) == "command line: 'train.steps' must be an integer, not the text \"many\"");
  CHECK(line({"train.steps", "-1"}) == "command line: 'train.steps' must be at least 1, not -1");
  CHECK(line({"loss.x", "1"}) == "command line: unknown key 'loss.x': 'loss' is not a section");
  CHECK_THAT(line({"zero_optimization.mics_shard_size", "2", "--set"}),
             StartsWith("--set: not supported yet: 'zero_optimization.mics_shard_size' = 2 ("));
  CHECK_THAT(line({"optimizer.params", "{lr: }"}), Contains("'optimizer.params': expected a value, got '}'"));
  CHECK_THAT(line({"", "1"}), Contains("unknown key ''"));
  CHECK_THAT(line({"train..steps", "1"}), Contains("unknown key ''"));
}

TEST_CASE("an alias on the command line wins over the key in the file", "[config][override]") {
  auto result = with(
      "{zero_optimization: {stage3_max_live_parameters: 1, offload_optimizer: {device: \"cpu\"}}, bf16: {enabled: "
      "false}}",
      {{"zero_optimization.max_live_parameters", "2"},
       {"zero_optimization.cpu_offload", "false"},
       {"bfloat16.enabled", "true"}});
  INFO(all_lines(result));
  REQUIRE(result.ok());
  CHECK(result.settings.integer("zero_optimization.stage3_max_live_parameters") == 2);
  CHECK(result.config.precision == Precision::kBf16);
}

TEST_CASE("offloading can be set and taken back on the command line", "[config][override]") {
  const std::string file = "{zero_optimization: {stage: 3, offload_optimizer: {device: \"nvme\", nvme_path: \"/a\"}}}";
  auto result = with(file, {{"zero_optimization.offload_optimizer.nvme_path", "[\"/b\", \"~/c\"]"},
                            {"zero_optimization.offload_optimizer.delayed_update", "{warmup_steps: 5}"},
                            {"zero_optimization.cpu_offload_param", "true"},
                            {"aio.thread_count", "4"}});
  INFO(all_lines(result));
  REQUIRE(result.ok());
  const Zero& zero = result.config.zero;
  CHECK(zero.offload_optimizer.nvme_path == std::vector<std::string>{"/b", "~/c"});
  CHECK(zero.offload_optimizer.delayed_after_steps == 5);
  CHECK(zero.offload_param.device == OffloadDevice::kHost);
  CHECK(result.config.aio.num_threads == 4);
  for (const char* off : {"null", "{}", "{device: \"none\"}"}) {
    CHECK(with(file, {{"zero_optimization.offload_optimizer", off}}).config.zero.offload_optimizer.device ==
          OffloadDevice::kNone);
  }
  CHECK(with(file, {{"zero_optimization.offload_optimizer.device", "null"}}).config.zero.offload_optimizer.device ==
        OffloadDevice::kNone);
  CHECK(with(file, {{"zero_optimization.offload_optimizer.delayed_update", "true"}})
            .config.zero.offload_optimizer.delayed_update);
}

TEST_CASE("--set texts are taken apart at the first equals sign", "[config][override]") {
  Override option = parse_set_option("data.train=a=b.npz");
  CHECK(option.key == "data.train");
  CHECK(option.value == "a=b.npz");
  CHECK(option.origin == "command line");
  for (const char* bad : {"stage", "=1", ""}) {
    try {
      parse_set_option(bad);
      FAIL("no error");
    } catch (const UserError& error) {
      CHECK(error.code() == ExitCode::kUsage);
      CHECK_THAT(error.what(), Contains("is not KEY=VALUE"));
    }
  }
}
