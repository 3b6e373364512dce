// The configs of the field's well-known guides: which load now, and which are refused for exactly what is not built
// yet. When a feature lands, its key leaves these lists.
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <set>

#include "load_support.hpp"
#include "support/checkout.hpp"

using namespace dslaunch::config;
using Catch::Matchers::Contains;

namespace {

const std::string kFolder = dslaunch::test::source_file("tests/data/guide_configs/");
const std::string kParam = "zero_optimization.offload_param.device",
                  kOptimizer = "zero_optimization.offload_optimizer.device";

const std::map<std::string, std::set<std::string>> kRefused = {
    {"guide0_01", {}},
    {"guide0_02", {kOptimizer}},
    {"guide0_03", {kOptimizer, kParam}},
    {"guide0_04", {kOptimizer, kParam}},
    {"guide2_01", {}},
    {"guide2_02", {kOptimizer}},
    {"guide2_03", {kOptimizer, kParam}},
    {"guide2_04", {kOptimizer, kParam}},
    {"guide2_05", {}},
    {"guide2_06", {}},
    {"guide2_07", {}},
    {"guide2_08", {}},
    {"guide2_09", {}},
    {"guide2_10", {}},
    {"guide2_11", {}},
    {"guide2_12", {}},
    {"guide2_13", {}},
    {"guide2_14", {}},
    {"guide2_15", {}},
    {"guide2_16", {}},
    {"guide2_17", {}},
    {"guide2_18", {kOptimizer, kParam}},
    {"guide2_19", {}},
    {"guide2_20", {}},
    {"guide4_01", {}},
    {"guide4_02", {}},
    {"guide4_03", {kOptimizer, kParam}},
};

LoadResult load_guide(const std::string& name, int world = 1, const std::vector<Override>& overrides = {}) {
  return load_file(kFolder + name + ".json", overrides, {world});
}

}  // namespace

TEST_CASE("published configs load, or are refused for what is not built yet and nothing else",
          "[config][guide_configs]") {
  for (const auto& [name, refused] : kRefused) {
    for (int world : {1, 2, 8}) {
      auto result = load_guide(name, world);
      INFO(name << " on " << world << "\n" << all_lines(result));
      std::set<std::string> keys;
      for (const auto& issue : result.issues) {
        CHECK(issue.kind == Issue::Kind::kNotYet);
        CHECK_THAT(issue.message, Contains("not supported yet"));
        CHECK(issue.position.line > 0);
        keys.insert(issue.key);
      }
      CHECK(keys == refused);
      CHECK(result.issues.size() == refused.size());
    }
  }
}

TEST_CASE("every file of the folder is in the list", "[config][guide_configs]") {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    INFO(entry.path());
    CHECK(kRefused.count(entry.path().stem()));
    ++count;
  }
  CHECK(count == kRefused.size());
  CHECK(count == 27);
}

TEST_CASE("the quirks of the published configs are read as they are meant", "[config][guide_configs]") {
  CHECK(load_guide("guide2_02").settings.boolean("zero_optimization.round_robin_gradients"));  // after a missing comma
  auto misplaced = load_guide("guide2_04");
  CHECK(has_note(misplaced, "'aio' is in 'zero_optimization' but belongs at the top level"));
  CHECK(misplaced.settings.integer("aio.queue_depth") == 32);
  CHECK(has_note(misplaced, "'aio.thread_count' has no counterpart"));
  CHECK(load_guide("guide4_01").config.steps_per_print == 9999999999);
  CHECK(load_guide("guide2_20").config.precision == Precision::kAuto);
  CHECK(load_guide("guide2_16").config.communication_data_type == ScalarType::kFp32);
  CHECK(load_guide("guide2_13", 4).config.batch.train_batch == 32);
  CHECK(has_note(load_guide("guide2_06"), "'zero_allow_untested_optimizer' has no counterpart here"));
}

TEST_CASE("a published config runs with the unbuilt features switched off on the command line",
          "[config][guide_configs]") {
  auto result = load_guide("guide2_04", 2,
                           {{"zero_optimization.stage", "1"},
                            {"zero_optimization.offload_optimizer", "null"},
                            {"zero_optimization.offload_param", "null"}});
  INFO(all_lines(result));
  REQUIRE(result.ok());
  CHECK(result.config.zero.stage == 1);
  CHECK(result.config.optimizer.lr == 5e-5);
  CHECK(result.config.scheduler.warmup_num_steps == 0);
  CHECK(result.config.gradient_clipping == 1.0);
}
