// The largest GPT that fits: against the sizes of known models, and at the edge of what fits.
#include "runtime/engine/plan/largest_gpt.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "runtime/engine/plan/estimate_activations.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::plan;
using Catch::Matchers::Contains;

namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

PlanReport hosts(int num_nodes, int gpus, int64_t gpu_bytes, int64_t host_bytes) {
  PlanReport report;
  report.num_nodes = num_nodes;
  report.ranks_of_node = gpus;
  report.num_data_ranks = num_nodes * gpus;
  report.device = at::kCUDA;
  report.capacity = {gpu_bytes, host_bytes, gpus, true};
  return report;
}

JobSource bf16_job(int world_size) {
  return {"", {{"bf16.enabled", "true", "test"}, {"zero_optimization.stage", "3", "test"}}, world_size};
}

int64_t parameters_of(GptShape shape) {
  return gpt_model(shape).table.num_elements();
}

}  // namespace

TEST_CASE("GPTs scale as published ones", "[runtime][engine][plan]") {
  CHECK(gpt_of_width(768).blocks == 12);
  CHECK(gpt_of_width(2048).blocks == 24);
  CHECK(gpt_of_width(4096).blocks == 32);
  CHECK(gpt_of_width(128).blocks == 8);
  CHECK(gpt_of_width(1408).blocks == 18);
  CHECK(gpt_of_width(51200).blocks == 256);
  // What tools/export writes for gpt-163m, gpt-1.4b and gpt-6.9b.
  CHECK(parameters_of({768, 12, 50304, 1024}) == 163109376);
  CHECK(parameters_of({2048, 24, 50304, 1024}) == 1416744960);
  CHECK(parameters_of({4096, 32, 50304, 2048}) == 6864642048);
  CHECK(static_cast<double>(parameters_of(gpt_of_width(25600))) == Approx(1.01e12).epsilon(0.01));
}

TEST_CASE("the largest GPT fits, and the next one does not", "[runtime][engine][plan]") {
  const auto report = hosts(1, 8, 80 * kGiB, 1024 * kGiB);
  const auto found = find_largest_gpts(report, bf16_job(8));
  REQUIRE(found.size() == 11);
  for (const auto& row : found) {
    INFO(row.setting.stage << " " << text_of(row.setting.optimizer) << " " << text_of(row.setting.parameters));
    REQUIRE(row.shape);
    PlanReport fitting = report;
    fitting.activations = {memory_plan::points_of(*row.activations), "estimated"};
    CHECK(fit_of(peak_of(row.setting, fitting), report.capacity) == memory_plan::Fit::kYes);
    const GptShape next = gpt_of_width(row.shape->hidden + 128);
    PlannedSetting larger = row.setting;
    larger.memory = plan_rank(gpt_model(next), larger.config, {.device = at::kCUDA, .num_data_ranks = 8});
    PlanReport exceeding = report;
    const int64_t more = *row.activations * (next.hidden * next.blocks) / (row.shape->hidden * row.shape->blocks);
    exceeding.activations = {memory_plan::points_of(more), "estimated"};
    CHECK(fit_of(peak_of(larger, exceeding), report.capacity) == memory_plan::Fit::kNo);
  }
  // 16 bytes for each parameter: 80 GiB hold less than 5.37e9; sharded, eight times as much less slots and buckets.
  CHECK(found[0].num_parameters > 3'000'000'000);
  CHECK(found[0].num_parameters < 5'370'000'000);
  CHECK(found[5].num_parameters > 5 * found[0].num_parameters);
  CHECK(found[5].setting.is_own);
}

TEST_CASE("a model of 1e12 parameters can be planned", "[runtime][engine][plan]") {
  const auto report = hosts(64, 8, 80 * kGiB, 1024 * kGiB);
  JobSource job = bf16_job(512);
  job.overrides.push_back({"activation_checkpointing.enabled", "true", "test"});
  const auto found = find_largest_gpts(report, job);
  CHECK(found[5].num_parameters > 1'000'000'000'000);  // ZeRO 3: 16 TB of state on 512 GPUs
  CHECK_THAT(largest_text(report, found),
             Contains("64 hosts with 8 GPUs; GPU memory 80.00 GiB, host memory 1024.00 GiB"));
  CHECK_THAT(largest_text(report, found), Contains("T   "));
  const auto document = nlohmann::json::parse(largest_json(report, found));
  CHECK(document["largest"][5]["num_parameters"] == found[5].num_parameters);
  CHECK(document["largest"][5]["limit"] == "GPU");
}

TEST_CASE("stages of a GPT have all of its parameters, cut between blocks", "[runtime][engine][plan]") {
  const GptShape shape{256, 8, 1000, 64};
  const auto whole = gpt_model(shape);
  const auto stages = gpt_stages(shape, 3);
  REQUIRE(stages.size() == 3);
  std::vector<std::string> names, units;
  for (const auto& stage : stages) {
    CHECK(stage.table.units[0].name.empty());
    for (size_t unit = 0; unit < stage.table.units.size(); ++unit) {
      if (unit > 0) units.push_back(stage.table.units[unit].name);
      for (const int index : stage.table.units[unit].parameters) {
        const auto& parameter = stage.table.parameters[static_cast<size_t>(index)];
        CHECK(parameter.unit == static_cast<int>(unit));
        names.push_back(parameter.name);
      }
    }
  }
  std::sort(names.begin(), names.end());
  std::vector<std::string> want, want_units;
  for (const auto& parameter : whole.table.parameters) want.push_back(parameter.name);
  std::sort(want.begin(), want.end());
  for (size_t unit = 1; unit < whole.table.units.size(); ++unit) want_units.push_back(whole.table.units[unit].name);
  CHECK(names == want);
  CHECK(units == want_units);
  // Blocks of 789,760, embeddings of 272,384, an output layer of 256,512: two, three and three blocks.
  CHECK(stages[0].table.units.size() == 1 + 2 + 2);
  CHECK(stages[1].table.units.size() == 1 + 3);
  CHECK(stages[2].table.units.size() == 1 + 3 + 1);
  CHECK(gpt_stages(shape, 10).size() == 10);
  CHECK(gpt_stages(shape, 11).empty());
}

TEST_CASE("the largest GPT of a pipeline has room for its first stage", "[runtime][engine][plan]") {
  auto report = hosts(1, 8, 80 * kGiB, 1024 * kGiB);
  report.num_data_ranks = 2;
  const JobSource job{"",
                      {{"bf16.enabled", "true", "test"},
                       {"zero_optimization.stage", "1", "test"},
                       {"pipeline.stages", "4", "test"},
                       {"train_micro_batch_size_per_gpu", "1", "test"},
                       {"gradient_accumulation_steps", "8", "test"}},
                      8};
  const auto found = find_largest_gpts(report, job);
  const auto own = std::find_if(found.begin(), found.end(), [](const auto& row) { return row.setting.is_own; });
  REQUIRE(own != found.end());
  REQUIRE(own->shape);
  CHECK(own->limit == "GPU");
  // A stage of a quarter takes 4 + 4 bytes for each parameter and half of 12, at least; 80 GiB hold less than 25e9 of
  // them.
  CHECK(own->num_parameters < 4 * (80 * kGiB / 12));
  CHECK(own->num_parameters > 10'000'000'000);
  // Four micro batches under way, of a quarter of the layers each: about what all layers but the last keep of one.
  GptShape shape = *own->shape;
  const auto of_blocks = [&](int64_t vocabulary) {
    shape.vocabulary = vocabulary;
    return static_cast<double>(estimate_activations(gpt_model(shape).table, {}, shape.positions, at::kBFloat16));
  };
  CHECK(static_cast<double>(*own->activations) == Approx(of_blocks(1)).epsilon(0.1));
  for (const auto& row : found) CHECK(row.setting.stage <= 1);
  CHECK_THAT(largest_text(report, found), Contains("data ranks 2, pipeline stages 4 (cut by parameters"));
  report.activations = {memory_plan::points_of(kGiB), "given"};
  CHECK(*find_largest_gpts(report, job).front().activations == kGiB);
}

TEST_CASE("no GPT fits where nothing fits", "[runtime][engine][plan]") {
  const auto report = hosts(1, 1, kGiB / 64, kGiB / 64);
  const auto found = find_largest_gpts(report, bf16_job(1));
  CHECK_FALSE(found[0].shape);
  CHECK_THAT(largest_text(report, found), Contains("none: not even a width of 128 fits (GPU)"));
}
