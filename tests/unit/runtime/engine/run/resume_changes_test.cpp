#include "runtime/engine/run/resume_changes.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/report.hpp"
#include "runtime/engine/run/resolved_config.hpp"
#include "support/job_rank.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using Catch::Matchers::Contains;
using engine::run::describe_changes;
using nlohmann::json;

namespace {

// What a run with this config saves at step 16 of a run of `steps`.
CheckpointMetadata saved_by(const json& config, int ranks = 2, int64_t steps = 16) {
  const auto loaded = test::load_config(config, ranks);
  CheckpointMetadata out{.step = 16};
  out.config = config::resolved_json(loaded);
  json resolved = json::parse(out.config);
  const json::json_pointer total("/scheduler/params/total_num_steps");
  if (resolved.contains(total) && resolved[total] == "auto") resolved[total] = steps;
  out.config = resolved.dump();
  out.parameters = {{.name = "weight", .shape = {2}}, {.name = "table", .shape = {2}, .trainable = false}};
  return out;
}

// Its schedule ends with the run.
const json kDecaying{
    {"train_micro_batch_size_per_gpu", 8},
    {"scheduler", {{"type", "WarmupDecayLR"}, {"params", {{"warmup_num_steps", 2}, {"total_num_steps", "auto"}}}}}};

std::vector<std::string> texts(const CheckpointMetadata& saved, const CheckpointMetadata& now,
                               bool takes_moments = true) {
  std::vector<std::string> out;
  for (const auto& change : describe_changes(saved, now, takes_moments)) out.push_back(change.text);
  return out;
}

}  // namespace

TEST_CASE("a run that resumes as it was says nothing", "[runtime][engine][resume_changes]") {
  const auto run = saved_by(kDecaying);
  CHECK(texts(run, run).empty());
  auto imported = run;
  for (const char* config : {"", "{}", "[1]", R"({"unknown": 1})"}) {
    imported.config = config;
    CHECK(texts(imported, run).empty());
  }
}

TEST_CASE("parameters whose training begins or ends are named", "[runtime][engine][resume_changes]") {
  const auto saved = saved_by(kDecaying);
  auto now = saved;
  now.parameters[0].trainable = false;
  now.parameters[1].trainable = true;
  now.parameters[1].dtype = at::kBFloat16;
  const auto said = texts(saved, now);
  REQUIRE(said.size() == 3);
  CHECK_THAT(said[0], Contains("trained from here on: 'table'") && Contains("counted from here"));
  CHECK_THAT(said[1], Contains("frozen from here on: 'weight'"));
  CHECK_THAT(said[2], Contains("'table (Float to BFloat16)'"));
  CHECK(texts(saved, now, /*takes_moments=*/false).size() == 1);  // all moments are fresh
}

TEST_CASE("another global batch, optimizer or schedule is said with what it was", "[runtime][engine][resume_changes]") {
  const auto saved = saved_by(kDecaying);
  auto said = texts(saved, saved_by(kDecaying, 3));
  REQUIRE(said.size() == 1);
  CHECK_THAT(said[0], Contains("is 24 samples and was 16 in the checkpoint (3 data ranks instead of 2)") &&
                          Contains("a number of data ranks that divides 16"));
  said = texts(saved, saved_by(kDecaying, 1));
  REQUIRE(said.size() == 1);
  CHECK_THAT(said[0], Contains("is 8 samples and was 16") && Contains("--set train_batch_size=16"));

  said = texts(saved, saved_by(kDecaying, 2, 32));
  REQUIRE(said.size() == 1);
  CHECK_THAT(said[0], Contains("the learning rate of step 17 is 0.000") && Contains("had 7.143e-05") &&
                          Contains("the schedule has 32 steps and had 16"));

  json lion = kDecaying;
  lion["optimizer"] = {{"type", "Lion"}, {"params", {{"lr", 1e-3}}}};
  said = texts(saved, saved_by(lion));
  REQUIRE(!said.empty());
  CHECK_THAT(said[0], Contains("the optimizer is Lion and was AdamW"));
}
