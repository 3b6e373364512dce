// The configs of the field's well-known guides, and files with the same keys as other published ones
// (tests/data/offload_configs), load as they are.
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <set>

#include "load_support.hpp"
#include "support/checkout.hpp"

using namespace dslaunch::config;
using Catch::Matchers::Contains;

namespace {

using enum OffloadDevice;

const std::string kFolder = dslaunch::test::source_file("tests/data/guide_configs/"),
                  kOffloadFolder = dslaunch::test::source_file("tests/data/offload_configs/");

struct Offloading {
  int stage;
  OffloadDevice optimizer, param;
};

// What the files with such a section ask for; other files of the first folder have none.
const std::map<std::string, Offloading> kOffloading = {
    {"guide0_02", {2, kHost, kNone}},
    {"guide0_03", {3, kHost, kHost}},
    {"guide0_04", {3, kFile, kFile}},
    {"guide2_02", {2, kHost, kNone}},
    {"guide2_03", {3, kHost, kHost}},
    {"guide2_04", {3, kFile, kFile}},
    {"guide2_18", {3, kHost, kHost}},
    {"guide4_03", {3, kHost, kHost}},
    {"deprecated_cpu_offload", {2, kHost, kNone}},
    {"hub_zero2", {2, kHost, kNone}},
    {"hub_zero3", {3, kHost, kHost}},
    {"hub_zero3_nvme", {3, kFile, kFile}},
    {"tiny_sub_groups", {3, kHost, kHost}},
    {"zero_inference", {3, kNone, kHost}},
    {"zero_offload_tutorial", {2, kHost, kNone}},
    {"zero_infinity_tutorial", {3, kHost, kHost}},
};

std::vector<std::filesystem::path> files_of(const std::string& folder) {
  std::vector<std::filesystem::path> out;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) out.push_back(entry.path());
  return out;
}

LoadResult load_guide(const std::string& name, int world = 1, const std::vector<Override>& overrides = {}) {
  return load_file(kFolder + name + ".json", overrides, {world});
}

}  // namespace

TEST_CASE("published configs load, and offload what they ask for", "[config][guide_configs]") {
  auto files = files_of(kFolder), others = files_of(kOffloadFolder);
  CHECK(files.size() == 27);
  CHECK(others.size() == 8);
  files.insert(files.end(), others.begin(), others.end());
  size_t offloading = 0;
  for (const auto& file : files) {
    for (int world : {1, 2, 8}) {
      const auto result = load_file(file, {}, {world});
      INFO(file << " on " << world << "\n" << all_lines(result));
      REQUIRE(result.ok());
      const auto found = kOffloading.find(file.stem());
      const Zero& zero = result.config.zero;
      const Offloading expected = found == kOffloading.end() ? Offloading{zero.stage, kNone, kNone} : found->second;
      CHECK(zero.stage == expected.stage);
      CHECK(zero.offload_optimizer.device == expected.optimizer);
      CHECK(zero.offload_param.device == expected.param);
      offloading += zero.offload_optimizer.device != kNone || zero.offload_param.device != kNone;
    }
  }
  CHECK(offloading == 3 * kOffloading.size());
}

TEST_CASE("the quirks of the published configs are read as they are meant", "[config][guide_configs]") {
  CHECK(load_guide("guide2_02").settings.boolean("zero_optimization.round_robin_gradients"));  // after a missing comma
  auto misplaced = load_guide("guide2_04");
  CHECK(has_note(misplaced, "'aio' is in 'zero_optimization' but belongs at the top level"));
  CHECK(misplaced.settings.integer("aio.queue_depth") == 32);
  CHECK(misplaced.config.aio.num_threads == 1);
  CHECK(misplaced.config.zero.offload_optimizer.nvme_path == std::vector<std::string>{"/local_nvme"});
  CHECK(misplaced.config.zero.offload_param.buffer_size == 100'000'000);
  CHECK(load_guide("guide4_01").config.steps_per_print == 9999999999);
  CHECK(load_guide("guide2_20").config.precision == Precision::kAuto);
  CHECK(load_guide("guide2_16").config.communication_data_type == ScalarType::kFp32);
  CHECK(load_guide("guide2_13", 4).config.batch.train_batch == 32);
  CHECK(has_note(load_guide("guide2_06"), "'zero_allow_untested_optimizer' has no counterpart here"));
}

TEST_CASE("a published config loads with its offloading switched off on the command line", "[config][guide_configs]") {
  auto result = load_guide("guide2_04", 2,
                           {{"zero_optimization.stage", "1"},
                            {"zero_optimization.offload_optimizer", "null"},
                            {"zero_optimization.offload_param", "null"}});
  INFO(all_lines(result));
  REQUIRE(result.ok());
  CHECK(result.config.zero.stage == 1);
  CHECK(result.config.zero.offload_optimizer.device == kNone);
  CHECK(result.config.zero.offload_param.device == kNone);
  CHECK(result.config.optimizer.lr == 5e-5);
  CHECK(result.config.scheduler.warmup_num_steps == 0);
  CHECK(result.config.gradient_clipping == 1.0);
}

TEST_CASE("published sizes of sub-groups and buffers are read as they are", "[config][guide_configs]") {
  const auto load_offload = [](const std::string& name) { return load_file(kOffloadFolder + name + ".json", {}, {1}); };
  const auto tiny = load_offload("tiny_sub_groups");
  CHECK(tiny.settings.integer("zero_optimization.sub_group_size") == 0);
  CHECK(tiny.config.zero.sub_group_size == 65536);
  CHECK(load_offload("tiny_sub_groups").config.zero.max_live_parameters == 0);
  CHECK(load_offload("hub_zero3").config.zero.sub_group_size == 100'000'000'000'000);
  const auto nvme = load_offload("hub_zero3_nvme");
  CHECK(nvme.config.aio.block_size == 262144);
  CHECK(nvme.config.zero.offload_optimizer.buffer_count == 4);
  CHECK(nvme.config.zero.offload_param.max_in_cpu == 1'000'000'000);
  CHECK(load_offload("deprecated_cpu_offload").notes.size() >= 2);
}
