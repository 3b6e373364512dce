// Steps that `dslaunch bench step` measures, on the CPU.
#include "runtime/engine/bench/measure_step.hpp"

#include <catch2/catch.hpp>
#include <filesystem>

#include "config/load.hpp"
#include "support/job_files.hpp"
#include "support/mesh_threads.hpp"
#include "support/mixed_net.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime::engine;

namespace {

// Of the mixed net for a sample: encode, two blocks, decode, the frozen product and the head.
constexpr int64_t kForwardMacs = 5 * 25 + 15;
// Weights and inputs, but for the input of the first product and the frozen weight.
constexpr int64_t kBackwardMacs = 2 * kForwardMacs - 25 - 25;

config::JobConfig load(const std::string& path) {
  auto loaded = config::load_file(path, {}, {.world_size = 1});
  REQUIRE(loaded.ok());
  return loaded.config;
}

bench::StepMeasurement measure(const test::JobFiles& job, const config::JobConfig& config,
                               const bench::StepCounts& counts) {
  bench::StepMeasurement out;
  test::run_mesh({.data = 1}, [&](const comm::Groups& groups) {
    out = bench::measure_step(job.model, config, runtime::device::Device(at::kCPU), groups.world, counts);
  });
  return out;
}

}  // namespace

TEST_CASE("a measured step is one of a run: its batch, its arithmetic, its time", "[runtime][engine][bench]") {
  const test::JobFiles job(test::make_mixed_net());
  const auto config = load(job.folder.write("ds.json", job.config({{"train_micro_batch_size_per_gpu", 4}}).dump()));
  const auto count_files = [&] {
    return std::distance(std::filesystem::recursive_directory_iterator(job.folder.path()), {});
  };
  const auto before = count_files();
  const auto measured = measure(job, config, {.warmup = 2, .timed = 3, .profiled = 2});
  CHECK(measured.step_ms.size() == 3);
  CHECK(measured.held_ms.size() == 3);
  CHECK(measured.min_ms() > 0);
  CHECK(measured.min_ms() <= measured.median_ms());
  CHECK(measured.median_ms() <= measured.max_ms());
  CHECK(measured.num_parameters == 125);
  CHECK(measured.samples_per_step == test::JobFiles::kTrainBatch);
  CHECK(measured.tokens_per_step == 0);
  CHECK(measured.macs.forward == test::JobFiles::kTrainBatch * kForwardMacs);
  CHECK(measured.macs.backward == test::JobFiles::kTrainBatch * kBackwardMacs);
  CHECK(measured.macs.update == 0);
  CHECK(measured.memory.allocated > 125 * 4 * 3);  // masters and moments
  CHECK(measured.memory.reserved == 0);
  CHECK(measured.profile.num_steps == 2);
  CHECK(!measured.profile.work.empty());
  CHECK(measured.profile.busy_ms <= measured.profile.wall_ms);
  CHECK(!measured.is_captured);
  CHECK(measured.why_not_captured == "it needs a GPU");
  CHECK(measured.graphs.replaced.at("dslaunch::matmul") > 0);
  CHECK(measured.notes.empty());
  CHECK(count_files() == before);
}

TEST_CASE("eager TorchScript has no pass that can be switched off, and no capture", "[runtime][engine][bench]") {
  const test::JobFiles job(test::make_mixed_net());
  auto config = load(job.folder.write("ds.json", job.config({{"graph_harvesting", true}}).dump()));
  const auto own = measure(job, config, {.warmup = 2, .timed = 1, .profiled = 0});
  CHECK(own.why_not_captured == "it needs a GPU");
  config = bench::in_eager_torchscript(config);
  CHECK(config.graph_harvesting == false);
  const auto plain = measure(job, config, {.warmup = 2, .timed = 1, .profiled = 0});
  CHECK(plain.graphs.replaced.empty());
  CHECK(plain.graphs.why_no_regions == "kernels.fused_regions is false");
  CHECK(plain.macs.total() == own.macs.total());
  CHECK(plain.profile.work.empty());
}

TEST_CASE("a measurement says when a run would have ended", "[runtime][engine][bench]") {
  const test::JobFiles job(test::make_mixed_net());
  const auto config =
      load(job.folder.write("ds.json", job.config({{"optimizer", {{"params", {{"lr", 1e30}}}}}}).dump()));
  const auto measured = measure(job, config, {.warmup = 2, .timed = 3, .profiled = 0});
  REQUIRE(measured.notes.size() == 1);
  CHECK_THAT(measured.notes[0],
             Catch::StartsWith("the loss of step ") && Catch::EndsWith(" is not finite: a run would end there"));
}
