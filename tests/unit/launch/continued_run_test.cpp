#include "launch/commands/continued_run.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/report.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
using Catch::Matchers::Contains;

namespace {

config::LoadResult load(const std::string& text, int world_size) {
  auto loaded = config::load_text(text, "ds.json", config::Format::kHjson, {}, {.world_size = world_size, .model = {}});
  config::throw_if_bad(loaded);
  return loaded;
}

// By a run with the first config on so many ranks, continued with the second config on other ranks.
KeptSettings kept(const std::string& before, int ranks_before, const std::string& now, int ranks_now) {
  return settings_to_keep(config::resolved_json(load(before, ranks_before)), load(now, ranks_now));
}

const std::string kMicroOnly = "{train_micro_batch_size_per_gpu: 6}";

}  // namespace

TEST_CASE("a run that continues on other ranks keeps its global batch", "[launch][continued_run]") {
  struct Case {
    std::string config;
    int ranks;
    std::vector<std::string> sets;
  };
  const std::vector<Case> cases = {
      {kMicroOnly, 2, {}},
      {kMicroOnly, 1, {"12", "6", "2"}},
      {kMicroOnly, 3, {"12", "4", "1"}},
      {"{}", 4, {"12", "1", "3"}},
      {"{train_micro_batch_size_per_gpu: 4, gradient_accumulation_steps: 2}", 1, {"12", "4", "3"}},
      {kMicroOnly, 5, {}},                                                   // 12 does not divide: the ranks warn
      {"{train_batch_size: 24, train_micro_batch_size_per_gpu: 6}", 1, {}},  // the user's choice
      {"{train_micro_batch_size_per_gpu: 4}", 2, {}},                        // likewise
  };
  for (const auto& each : cases) {
    INFO(each.config << " on " << each.ranks);
    const auto found = kept(kMicroOnly, 2, each.config, each.ranks);
    std::vector<std::string> values;
    for (const auto& set : found.sets) values.push_back(set.substr(set.find('=') + 1));
    CHECK(values == each.sets);
    CHECK(found.lines.size() == (each.sets.empty() ? 0 : 1));
  }
  CHECK(kept(kMicroOnly, 2, kMicroOnly, 1).lines.front() ==
        "the checkpoint's global batch of 12 is kept: micro batch 6 x accumulation 2 x 1 data ranks (it was 6 x 1 x "
        "2); --set train_batch_size=N takes another");
}

TEST_CASE("a pipeline that continues is cut as before", "[launch][continued_run]") {
  const std::string cut = "{pipeline: {stages: 3, partition: \"layers:4,9\"}}";
  const std::vector<std::string> again{"pipeline.partition=layers:4,9"};
  CHECK(kept(cut, 3, "{pipeline: {stages: 3}}", 3).sets == again);
  CHECK(kept(cut, 3, "{pipeline: {stages: 3, partition: \"time\"}}", 3).sets == again);
  CHECK(kept(cut, 3, "{pipeline: {stages: 3}, deterministic: true}", 3).sets == again);
  CHECK(kept(cut, 3, "{pipeline: {stages: 3, partition: \"uniform\"}}", 3).sets.empty());
  CHECK(kept(cut, 3, "{pipeline: {stages: 2}}", 2).sets.empty());
  CHECK(kept("{pipeline: {stages: 3, partition: \"uniform\"}}", 3, "{pipeline: {stages: 3}}", 3).sets.empty());
}

TEST_CASE("a config that is none keeps nothing", "[launch][continued_run]") {
  for (const char* text : {"", "[]", "{", "{\"train_batch_size\": \"auto\"}", "{\"train_batch_size\": -3}"}) {
    CHECK(settings_to_keep(text, load(kMicroOnly, 3)).sets.empty());
  }
}

TEST_CASE("a run whose schedule has ended is not proposed to train on", "[launch][continued_run]") {
  const config::Scheduler none, cosine{.type = config::SchedulerType::kWarmupCosineLR, .total_num_steps = 100};
  const config::Scheduler automatic{.type = config::SchedulerType::kWarmupDecayLR};
  CHECK(steps_to_train_on(none, 100, 100) == 200);
  CHECK(steps_to_train_on(cosine, 40, 40) == 80);
  CHECK(steps_to_train_on(cosine, 60, 60) == 100);
  CHECK_FALSE(steps_to_train_on(cosine, 100, 100));
  CHECK_FALSE(steps_to_train_on(cosine, 120, 120));
  CHECK_FALSE(steps_to_train_on(automatic, 100, 100));
  CHECK(steps_to_train_on(automatic, 100, 30) == 100);  // it has ended early; its schedule keeps its length
  CHECK_FALSE(steps_to_train_on(automatic, std::nullopt, 30));
}

TEST_CASE("a checkpoint, its directory and its run lead to the config that it records", "[launch][continued_run]") {
  const test::TempDir run;
  std::filesystem::create_directories(run / "checkpoints/step_00000010");
  CHECK(config_of_checkpoint(run.path()).empty());
  run.write("checkpoints/step_00000010/manifest.json", R"({"config": "the config"})");
  for (const char* path : {"", "/checkpoints", "/checkpoints/latest", "/checkpoints/step_00000010"}) {
    INFO(path);
    CHECK(config_of_checkpoint(run.path() + path) == "the config");
  }
  run.write("checkpoints/step_00000010/manifest.json", "{");
  CHECK(config_of_checkpoint(run.path()).empty());
}
