#include "runtime/engine/run/resolved_config.hpp"

#include <catch2/catch.hpp>

#include "config/load.hpp"
#include "config/report.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::run;

namespace {

config::LoadResult loaded(const std::string& text) {
  auto result = config::load_text(text, "ds.json", config::Format::kHjson);
  config::throw_if_bad(result);
  return result;
}

std::string resolved(const std::string& text) {
  return config::resolved_json(loaded(text));
}

SolvedSettings solved_as(at::ScalarType type) {
  SolvedSettings out{type, {}, 70};
  out.zero.reduce_bucket_size = 1024;
  out.zero.prefetch_bucket_size = 921;
  out.zero.param_persistence_threshold = 320;
  return out;
}

}  // namespace

TEST_CASE("a run writes down what auto came to", "[runtime][engine][resolved_config]") {
  const std::string before = resolved(
      "{bf16: {enabled: \"auto\"}, fp16: {enabled: \"auto\"}, zero_optimization: {stage: 3, reduce_bucket_size: "
      "\"auto\", stage3_prefetch_bucket_size: \"auto\", stage3_param_persistence_threshold: \"auto\"}, scheduler: "
      "{type: \"WarmupDecayLR\", params: {total_num_steps: \"auto\"}}, train: {epochs: 3}}");
  REQUIRE_THAT(before, Catch::Contains("\"auto\",\n"));
  const auto in_bf16 = loaded(with_solved_settings(before, solved_as(at::kBFloat16))).config;
  CHECK(in_bf16.precision == config::Precision::kBf16);
  CHECK(in_bf16.zero.reduce_bucket_size == 1024);
  CHECK(in_bf16.zero.prefetch_bucket_size == 921);
  CHECK(in_bf16.zero.param_persistence_threshold == 320);
  CHECK(in_bf16.scheduler.total_num_steps == 70);
  CHECK(loaded(with_solved_settings(before, solved_as(at::kFloat))).config.precision == config::Precision::kFp32);
}

TEST_CASE("what the file says stays as it is when a run writes it down", "[runtime][engine][resolved_config]") {
  const std::string before =
      resolved("{bf16: {enabled: true}, zero_optimization: {stage: 3, reduce_bucket_size: 7}, gradient_clipping: 0.1}");
  CHECK(with_solved_settings(before, solved_as(at::kFloat)) == before);
}

TEST_CASE("what auto came to can be listed", "[runtime][engine][resolved_config]") {
  const auto given = loaded(
      "{train_micro_batch_size_per_gpu: \"auto\", fp16: {enabled: \"auto\"}, zero_optimization: {stage: 3, "
      "reduce_bucket_size: \"auto\", stage3_prefetch_bucket_size: 5}}");
  const auto keys = config::auto_keys(given);
  const std::string text = with_solved_settings(config::resolved_json(given), solved_as(at::kHalf));
  CHECK(values_of(text, keys) ==
        std::vector<std::pair<std::string, std::string>>{{"train_micro_batch_size_per_gpu", "8"},
                                                         {"fp16.enabled", "true"},
                                                         {"zero_optimization.reduce_bucket_size", "1024"}});
  // Whatever is left open has no value to list.
  CHECK(values_of(config::resolved_json(given), {"zero_optimization.reduce_bucket_size", "loss", "no.such"}).empty());
}

TEST_CASE("a measured cut is written down as one that repeats it", "[runtime][engine][resolved_config]") {
  SolvedSettings solved = solved_as(at::kFloat);
  solved.first_layers = {4, 9};
  const auto cut_of = [&](const std::string& partition) {
    const auto before = resolved("{pipeline: {stages: 3, partition: \"" + partition + "\"}}");
    return values_of(with_solved_settings(before, solved), {"pipeline.partition"}).at(0).second;
  };
  CHECK(cut_of("best") == "layers:4,9");
  CHECK(cut_of("time") == "layers:4,9");
  CHECK(cut_of("uniform") == "uniform");
  CHECK(cut_of("layers:1,2") == "layers:1,2");
}
