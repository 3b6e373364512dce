// curriculum_learning and data_efficiency: what is read, and what does not make sense.
#include <catch2/catch.hpp>

#include "base/format.hpp"
#include "load_support.hpp"

using namespace dslaunch::config;
using Catch::Matchers::Contains;

namespace {

std::string legacy(const std::string& members) {
  return "{curriculum_learning: {enabled: true, curriculum_type: \"seqlen\", " + members + "}}";
}

std::string linear(int64_t low, int64_t high, const std::string& schedule) {
  return legacy(
      fmt::format("min_difficulty: {}, max_difficulty: {}, schedule_type: \"fixed_linear\", schedule_config: {{{}}}",
                  low, high, schedule));
}

std::string sampling(const std::string& members) {
  return "{data_efficiency: {enabled: true, seed: 5, data_sampling: {enabled: true, " + members + "}}}";
}

std::string metric(const std::string& members) {
  return sampling("curriculum_learning: {enabled: true, curriculum_metrics: {rarity: {" + members + "}}}");
}

const std::string kSchedule =
    "min_difficulty: 1, max_difficulty: 100, schedule_type: \"fixed_root\", "
    "schedule_config: {total_curriculum_step: 10, difficulty_step: 1, root_degree: 2}";

}  // namespace

TEST_CASE("a curriculum of lengths is read when it is enabled", "[config][data_efficiency]") {
  const auto config = good(linear(8, 64, "total_curriculum_step: 100, difficulty_step: 8"));
  CHECK(config.data_efficiency.sequence_length ==
        Difficulty{.minimum = 8, .maximum = 64, .total_steps = 100, .granularity = 8});
  const auto list =
      good(legacy("min_difficulty: 4, max_difficulty: 9, schedule_type: \"fixed_discrete\", "
                  "schedule_config: {difficulty: [4, 9], max_step: 7}"));
  CHECK(list.data_efficiency.sequence_length == Difficulty{.schedule = DifficultySchedule::kFixedDiscrete,
                                                           .minimum = 4,
                                                           .maximum = 9,
                                                           .levels = {4, 9},
                                                           .last_steps = {7}});
  CHECK_FALSE(good("{curriculum_learning: {enabled: false, min_difficulty: 8}}").data_efficiency.sequence_length);
}

TEST_CASE("a curriculum of lengths that cannot be is refused", "[config][data_efficiency]") {
  const std::string steps = "total_curriculum_step: 10, difficulty_step: 8";
  CHECK_THAT(only_line("{curriculum_learning: {min_difficulty: 8}}"), Contains("needs 'enabled'"));
  CHECK_THAT(only_line(linear(64, 8, steps)), Contains("min_difficulty' 64 is above max_difficulty 8"));
  CHECK_THAT(only_line(linear(1, 40, "total_curriculum_step: 100, difficulty_step: 8")),
             Contains("begins with samples of length 0") && Contains("make it at least 8"));
  CHECK_THAT(only_line(linear(8, 64, "total_curriculum_step: 0, difficulty_step: 8")),
             Contains("'curriculum_learning.schedule_config.total_curriculum_step' must be at least 1"));
  CHECK_THAT(only_line(linear(8, 64, "difficulty_step: 8")),
             Contains("needs 'schedule_config.total_curriculum_step' with schedule_type fixed_linear"));
  CHECK_THAT(only_line(legacy("min_difficulty: 8, max_difficulty: 64, schedule_type: \"custom\"")),
             Contains("not supported") && Contains("a function of Python") && Contains("fixed_discrete"));
  CHECK_THAT(only_line(legacy("min_difficulty: 8, max_difficulty: 64, schedule_type: \"fixed_discrete\", "
                              "schedule_config: {difficulty: [8, 64], max_step: [5, 9]}")),
             Contains("one entry less than 'difficulty'") && Contains("it has 2"));
  CHECK_THAT(only_line(legacy("min_difficulty: 8, max_difficulty: 64, schedule_type: \"fixed_discrete\", "
                              "schedule_config: {difficulty: [8, 9, 64], max_step: [5, 5]}")),
             Contains("must ascend"));
  CHECK_THAT(only_line(legacy("min_difficulty: 8, max_difficulty: 64, schedule_type: \"fixed_discrete\", "
                              "schedule_config: {difficulty: [0, 64], max_step: [5]}")),
             Contains("has a length of 0"));
}

TEST_CASE("metrics of a curriculum are read in the order of the file", "[config][data_efficiency]") {
  const auto efficiency =
      good(sampling("num_epochs: 3, curriculum_learning: {enabled: true, curriculum_metrics: {rarity: {" + kSchedule +
                    ", clustering_type: \"single_cluster\"}, length: {" + kSchedule +
                    ", difficulty_type: \"percentile\", index_to_sample_path: \"a\"}}}"))
          .data_efficiency;
  CHECK(efficiency.seed == 5);
  CHECK(efficiency.num_epochs == 3);
  REQUIRE(efficiency.metrics.size() == 2);
  CHECK(efficiency.metrics[0].name == "rarity");
  CHECK(efficiency.metrics[0].is_single_cluster);
  CHECK(efficiency.metrics[1].name == "length");
  CHECK(efficiency.metrics[1].by_percentile);
  CHECK(efficiency.metrics[1].index_to_sample_path == "a");
  CHECK(efficiency.metrics[1].difficulty == Difficulty{.schedule = DifficultySchedule::kFixedRoot,
                                                       .minimum = 1,
                                                       .maximum = 100,
                                                       .total_steps = 10,
                                                       .root_degree = 2});
  CHECK(
      good("{data_efficiency: {enabled: false, data_sampling: {enabled: true, curriculum_learning: {enabled: true}}}}")
          .data_efficiency.metrics.empty());
}

TEST_CASE("the sampler's epochs are those of the run unless train says otherwise", "[config][data_efficiency]") {
  CHECK(good(metric(kSchedule + ", clustering_type: \"single_cluster\"")).train.epochs == 1);
  const std::string members = "num_epochs: 3, curriculum_learning: {enabled: true, curriculum_metrics: {a: {" +
                              kSchedule + ", clustering_type: \"single_cluster\"}}}";
  CHECK(good(sampling(members)).train.epochs == 3);
  CHECK(good(sampling("num_epochs: 1000")).train.epochs == 1);
}

TEST_CASE("metrics that cannot be are refused", "[config][data_efficiency]") {
  CHECK_THAT(only_line(sampling("curriculum_learning: {enabled: true}")), Contains("needs 'curriculum_metrics'"));
  CHECK_THAT(only_line(metric(kSchedule)), Contains("needs 'index_to_sample_path'") && Contains("tools/analyze_data"));
  CHECK_THAT(only_line(metric(kSchedule + ", index_to_sample_path: \"a\"")), Contains("needs 'index_to_metric_path'"));
  CHECK_THAT(
      only_line(metric("min_difficulty: -5, max_difficulty: 10, schedule_type: \"fixed_linear\", difficulty_type: "
                       "\"percentile\", index_to_sample_path: \"a\", "
                       "schedule_config: {total_curriculum_step: 10, difficulty_step: 1}")),
      Contains("percentile") && Contains("admit none"));
  CHECK_THAT(only_line(metric("min_difficulty: 5, max_difficulty: 10, schedule_type: \"fixed_linear\", "
                              "clustering_type: \"single_cluster\", "
                              "schedule_config: {total_curriculum_step: 0, difficulty_step: 1}")),
             Contains("total_curriculum_step' must be at least 1"));
}

TEST_CASE("dynamic batching is read, and what it lacks is said", "[config][data_efficiency]") {
  const auto dynamic =
      *good(sampling("dynamic_batching: {enabled: true, metrics_path: \"a\", max_tokens: 100, "
                     "max_batch_size: 6, lr_scaling_method: \"sqrt\", sequence_picking_order: \"seqlen\"}"))
           .data_efficiency.dynamic_batching;
  CHECK(dynamic.metrics_path == "a");
  CHECK(dynamic.max_tokens == 100);
  CHECK(dynamic.min_batch_size == 1);
  CHECK(dynamic.max_batch_size == 6);
  CHECK(dynamic.lr_scaling_method == RateScaling::kSqrt);
  CHECK(dynamic.sequence_picking_order == PickingOrder::kSeqlen);
  CHECK_THAT(only_line(sampling("dynamic_batching: {enabled: true, metrics_path: \"a\"}")),
             Contains("needs 'max_tokens'"));
  CHECK_THAT(only_line(sampling("dynamic_batching: {enabled: true, max_tokens: 8}")), Contains("needs 'metrics_path'"));
  CHECK_THAT(
      only_line(sampling("dynamic_batching: {enabled: true, max_tokens: 8, metrics_path: \"a\", min_batch_size: 4, "
                         "max_batch_size: 3}")),
      Contains("max_batch_size' 3 is below min_batch_size 4"));
  CHECK_THAT(only_line(sampling("dynamic_batching: {enabled: true, max_tokens: 8, metrics_path: \"a\"}, "
                                "curriculum_learning: {enabled: true, curriculum_metrics: {a: {" +
                                kSchedule + ", clustering_type: \"single_cluster\"}}}")),
             Contains("both choose the samples of a batch"));
}

TEST_CASE("random_ltd is read, and what it lacks is said", "[config][data_efficiency]") {
  const auto routing = [](const std::string& members) {
    return "{data_efficiency: {enabled: true, data_routing: {enabled: true, random_ltd: {enabled: true, " + members +
           "}}}}";
  };
  const std::string schedule =
      "random_ltd_schedule: {min_value: 16, max_value: 64, schedule_type: \"fixed_linear\", "
      "schedule_config: {require_steps: 10, seq_per_step: 8}}";
  const std::string rest =
      ", random_ltd_layer_num: 2, random_ltd_layer_id: [3, 1], model_type: \"encoder\", "
      "hidden_state_order: \"seq_batch_dim\", model_mask_name: \"mask\", " +
      schedule;
  const auto ltd = *good(routing("total_layer_num: 4, micro_batch_size: 4" + rest)).data_efficiency.random_ltd;
  CHECK(ltd.layers == std::vector<int64_t>{1, 3});
  CHECK((ltd.num_layers == 4 && !ltd.batch_first && !ltd.is_decoder && ltd.mask_name == "mask"));
  CHECK(ltd.kept == Difficulty{.minimum = 16, .maximum = 64, .total_steps = 10, .granularity = 8});
  CHECK_THAT(only_line(routing("total_layer_num: 3" + rest)), Contains("has layer 3, and total_layer_num is 3"));
  CHECK_THAT(only_line(routing("random_ltd_layer_num: 2" + rest.substr(rest.find(", random_ltd_layer_id")))),
             Contains("needs 'total_layer_num'"));
  CHECK_THAT(only_line(routing("total_layer_num: 4, layer_token_lr_schedule: {enabled: true}" + rest)),
             Contains("layer_token_lr_schedule") && Contains("NotImplementedError"));
}
