// Curricula and dynamic batches against DeepSpeed's own functions (tests/data/data_efficiency, made by
// tests/oracle/data_efficiency_numbers.py), and the same at another world size and after an interruption.
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "config/difficulty.hpp"
#include "config/load.hpp"
#include "runtime/data/data_schedule.hpp"
#include "runtime/data/reference_random.hpp"
#include "support/checkout.hpp"
#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using nlohmann::json;
using test::expect_error;

namespace {

using Samples = std::vector<int64_t>;

constexpr int64_t kNumSamples = 210;

std::string path_of(const std::string& name) {
  return test::source_file("tests/data/data_efficiency/" + name);
}

json read(const std::string& name) {
  std::ifstream in(path_of(name));
  return json::parse(in);
}

config::JobConfig config_of(const json& text) {
  auto loaded = config::load_text(text.dump(), "the test's config", config::Format::kHjson, {}, {1});
  config::throw_if_bad(loaded);
  return loaded.config;
}

config::DataEfficiency with_metrics(json metrics, int64_t seed) {
  for (auto& metric : metrics) {
    for (const char* key : {"index_to_sample_path", "index_to_metric_path"}) {
      if (metric.contains(key)) metric[key] = path_of(metric[key].get<std::string>());
    }
  }
  const json curriculum{{"enabled", true}, {"curriculum_metrics", metrics}};
  return config_of({{"data_efficiency",
                     {{"enabled", true},
                      {"seed", seed},
                      {"data_sampling", {{"enabled", true}, {"curriculum_learning", curriculum}}}}}})
      .data_efficiency;
}

TrainingOrder order_of(const config::DataEfficiency& efficiency, BatchShape shape, int rank, int64_t steps_done) {
  TrainingOrder order{.num_samples = kNumSamples, .shape = shape, .rank = rank, .steps_done = steps_done};
  order.schedule.sequence_length = efficiency.sequence_length;
  order.schedule.curriculum = read_curriculum_index(efficiency, kNumSamples);
  return order;
}

// The global batches that the ranks get together.
std::vector<Samples> deal(const config::DataEfficiency& efficiency, BatchShape shape, int64_t steps_done, int64_t end) {
  std::vector<std::function<MicroBatchPlan()>> ranks;
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    ranks.push_back(plan_training(order_of(efficiency, shape, rank, steps_done)));
  }
  std::vector<Samples> batches;
  for (int64_t step = steps_done; step < end; ++step) {
    auto& batch = batches.emplace_back();
    for (int64_t slice = 0; slice < shape.accumulation; ++slice) {
      for (auto& next : ranks) {
        const auto plan = next();
        batch.insert(batch.end(), plan.samples.begin(), plan.samples.end());
      }
    }
  }
  return batches;
}

config::DynamicBatching dynamic_of(const json& options) {
  json section{{"enabled", true}, {"metrics_path", "lengths"}};
  for (const auto& [key, value] : options.items()) {
    if (key != "required_microbatches_of_same_size") section[key] = value;
  }
  return *config_of({{"data_efficiency",
                      {{"enabled", true}, {"data_sampling", {{"enabled", true}, {"dynamic_batching", section}}}}}})
              .data_efficiency.dynamic_batching;
}

}  // namespace

TEST_CASE("difficulties of 30 steps are DeepSpeed's", "[runtime][data][data_efficiency]") {
  for (const auto& each : read("schedules.json")) {
    INFO(each["name"]);
    json section = each["config"];
    section["enabled"] = true;
    section["curriculum_type"] = "seqlen";
    const auto difficulty = *config_of({{"curriculum_learning", section}}).data_efficiency.sequence_length;
    const Samples expected = each["difficulties"];
    Samples found;
    for (int64_t step = 1; step <= 30; ++step) found.push_back(config::difficulty_at(difficulty, step));
    CHECK(found == expected);
    // The list of changes says the same.
    Samples from_changes;
    const auto changes = config::difficulty_changes(difficulty, 30);
    for (size_t i = 0; i < changes.size(); ++i) {
      const int64_t end = i + 1 < changes.size() ? changes[i + 1].first_step : 31;
      from_changes.insert(from_changes.end(), static_cast<size_t>(end - changes[i].first_step), changes[i].difficulty);
    }
    CHECK(from_changes == expected);
  }
}

TEST_CASE("random numbers are those of NumPy and Python", "[runtime][data][data_efficiency]") {
  for (const auto& each : read("random.json")) {
    const uint64_t seed = each["seed"];
    INFO(seed);
    NumpyRandom numpy(seed);
    Samples array(50), items(50), python_items(50);
    for (auto* list : {&array, &items, &python_items}) std::iota(list->begin(), list->end(), 0);
    numpy.shuffle(std::span(array));
    CHECK(array == each["array"].get<Samples>());
    Samples counts(4);
    for (int i = 0; i < 100; ++i) {
      const double draw = numpy.next_double();
      counts[draw < 0.1 ? 0 : draw < 0.3 ? 1 : draw < 0.6 ? 2 : 3] += 1;
    }
    CHECK(counts == each["weighted"].get<Samples>());
    numpy.shuffle(std::span(items));
    CHECK(items == each["items"].get<Samples>());
    PythonRandom(seed).shuffle(std::span(python_items));
    CHECK(python_items == each["python"].get<Samples>());
  }
}

TEST_CASE("a curriculum draws DeepSpeed's samples, at any world size and after an interruption",
          "[runtime][data][data_efficiency]") {
  for (const auto& each : read("samples.json")) {
    INFO(each["name"] << ", seed " << each["seed"]);
    const auto efficiency = with_metrics(each["metrics"], each["seed"]);
    const auto expected = each["batches"].get<std::vector<Samples>>();
    CHECK(deal(efficiency, {.micro_batch = 4, .accumulation = 2, .num_ranks = 1}, 0, 30) == expected);
    const std::vector<Samples> rest(expected.begin() + 17, expected.end());
    CHECK(deal(efficiency, {.micro_batch = 1, .accumulation = 2, .num_ranks = 4}, 17, 30) == rest);
  }
}

TEST_CASE("dynamic batches are DeepSpeed's", "[runtime][data][data_efficiency]") {
  const json fixture = read("batches.json");
  for (const auto& each : fixture["cases"]) {
    INFO(each["options"]);
    const bool same_size = each["options"].contains("required_microbatches_of_same_size");
    const DynamicBatches batches(fixture["lengths"], dynamic_of(each["options"]), 4, same_size, 9);
    CHECK(batches.groups() == each["groups"].get<std::vector<Samples>>());
    const Samples sizes = each["sizes"], longest = each["longest"];
    REQUIRE(batches.num_steps() == std::ssize(sizes));
    const BatchShape shape{.micro_batch = 1, .accumulation = 2, .num_ranks = 2};
    for (int64_t step = 1; step <= batches.num_steps(); ++step) {
      const auto i = static_cast<size_t>(step - 1);
      CHECK(batches.num_samples(step) == sizes[i]);
      CHECK(1e-3 * batches.rate_scale(step) == Approx(each["lr"][i].get<double>()).epsilon(1e-12));
      int64_t most = 0;
      for (int rank = 0; rank < 2; ++rank) {
        for (int64_t slice = 0; slice < 2; ++slice) {
          const auto plan = batches.plan(step, slice, shape, rank);
          CHECK(plan.samples == each["ranks"][static_cast<size_t>(rank)][2 * i + static_cast<size_t>(slice)]);
          most = std::max(most, plan.sequence_length);
        }
      }
      CHECK(most == longest[i]);
    }
    int64_t most_positions = 0;  // what the check of memory counts
    for (const auto& group : batches.groups()) {
      int64_t most = 0;
      for (const int64_t sample : group)
        most = std::max<int64_t>(most, fixture["lengths"][static_cast<size_t>(sample)]);
      most_positions = std::max(most_positions, most * std::ssize(group));
    }
    if (!same_size) CHECK(batches.max_positions(shape) == most_positions);
    CHECK(batches.plan(batches.num_steps() + 1, 0, shape, 0).samples == batches.plan(1, 0, shape, 0).samples);
    CHECK(batches.plan(batches.num_steps(), 0, shape, 0).after == DataPosition{1, 0});
  }
}

TEST_CASE("the learning rate follows the samples of a step as asked", "[runtime][data][data_efficiency]") {
  const json lengths = json::array({5, 5, 5, 5, 5, 5, 5, 5, 5, 5});
  const auto scale = [&](const char* method) {
    return DynamicBatches(lengths, dynamic_of({{"max_tokens", 20}, {"lr_scaling_method", method}}), 1, false, 0)
        .rate_scale(1);
  };
  CHECK(scale("linear") == 4);
  CHECK(scale("sqrt") == 2);
  CHECK(scale("none") == 1);
}

TEST_CASE("the length of a step cuts the plan of all its micro batches", "[runtime][data][data_efficiency]") {
  config::DataEfficiency efficiency;
  efficiency.sequence_length = config::Difficulty{.minimum = 8, .maximum = 24, .total_steps = 2, .granularity = 8};
  auto next = plan_training(order_of(efficiency, {.micro_batch = 2, .accumulation = 2, .num_ranks = 1}, 0, 0));
  Samples lengths;
  for (int i = 0; i < 6; ++i) lengths.push_back(next().sequence_length);
  CHECK(lengths == Samples{16, 16, 24, 24, 24, 24});
  auto resumed = plan_training(order_of(efficiency, {.micro_batch = 1, .accumulation = 1, .num_ranks = 1}, 0, 1));
  CHECK(resumed().sequence_length == 24);
}

TEST_CASE("metric files that do not fit the data, and difficulties that admit nothing, are refused",
          "[runtime][data][data_efficiency]") {
  const auto metrics_of = [](const std::string& samples, const std::string& values, int64_t low, int64_t high,
                             const char* type = "value") {
    return json{{"seqlen",
                 {{"index_to_sample_path", samples},
                  {"index_to_metric_path", values},
                  {"difficulty_type", type},
                  {"min_difficulty", low},
                  {"max_difficulty", high},
                  {"schedule_type", "fixed_linear"},
                  {"schedule_config", {{"total_curriculum_step", 10}, {"difficulty_step", 1}}}}}};
  };
  const std::string samples = "seqlen/seqlen_index_to_sample", values = "seqlen/seqlen_index_to_metric";
  const auto refuses = [&](ExitCode code, const json& metrics, const std::vector<std::string>& words,
                           int64_t num_samples = kNumSamples) {
    expect_error(code, words, [&] { read_curriculum_index(with_metrics(metrics, 1), num_samples); });
  };
  refuses(ExitCode::kBadInput, metrics_of(samples, values, 4, 15), {"has 210 samples", "has 211"}, 211);
  refuses(ExitCode::kBadInput, metrics_of(samples, "rarity/rarity_index_to_metric", 4, 15), {"6 values", "13 rows"});
  refuses(ExitCode::kBadInput, metrics_of("seqlen/seqlen_sample_to_metric", values, 4, 15), {"twice"});
  refuses(ExitCode::kNoInput, metrics_of("seqlen/missing", values, 4, 15), {"seqlen/missing"});
  refuses(ExitCode::kBadInput, metrics_of(samples, values, 1, 15),
          {"admits no sample at step 1", "'seqlen' has difficulty 2", "3 to 15", "raise min_difficulty"});
  refuses(ExitCode::kBadInput, metrics_of(samples, values, 1, 211, "percentile"), {"211 parts", "210 samples"});
}

TEST_CASE("lengths that do not fit the data, and budgets that fit no step, are refused",
          "[runtime][data][data_efficiency]") {
  CHECK(read_sample_lengths(path_of(""), kNumSamples, 15).at(1) == 10);
  expect_error(ExitCode::kBadInput, {"210 samples", "100"}, [] { read_sample_lengths(path_of(""), 100, 15); });
  expect_error(ExitCode::kBadInput, {"length 15 of sample", "1 to 14"},
               [] { read_sample_lengths(path_of(""), kNumSamples, 14); });
  expect_error(ExitCode::kNoInput, {"seqlen_sample_to_metric"}, [] { read_sample_lengths("/nowhere", 100, 15); });
  expect_error(ExitCode::kBadInput, {"3 samples of 5 to 9 tokens", "at most 4 tokens", "needs 2", "max_tokens"}, [] {
    DynamicBatches({5, 9, 7}, dynamic_of({{"max_tokens", 4}}), 2, false, 0);
  });
}
