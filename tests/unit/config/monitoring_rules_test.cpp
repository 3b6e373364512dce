#include <catch2/catch.hpp>

#include "load_support.hpp"

using namespace dslaunch::config;
using Catch::Matchers::Contains;

TEST_CASE("the monitors' sections become typed", "[config][monitoring_rules]") {
  auto result = load(R"({
    steps_per_print: 5, wall_clock_breakdown: true, memory_breakdown: true
    tensorboard: {enabled: true, output_path: "tb", job_name: "a"}
    csv_monitor: {enabled: true}
    flops_profiler: {enabled: true, profile_step: 3, module_depth: 2, top_modules: 4, detailed: false,
                     output_file: "flops.txt", recompute_fwd_factor: 1}
    comms_logger: {enabled: true, prof_all: false, prof_ops: ["all_reduce"], verbose: true, debug: true}
    timers: {throughput: {enabled: false}}
  })");
  INFO(all_lines(result));
  REQUIRE(result.ok());
  const JobConfig& config = result.config;
  CHECK(config.deepspeed_lines);
  CHECK(config.steps_per_print == 5);
  CHECK(!config.throughput_timer);
  CHECK(config.wall_clock_breakdown);
  CHECK(config.memory_breakdown);
  CHECK(config.tensorboard.enabled);
  CHECK(config.tensorboard.output_path == "tb");
  CHECK(config.tensorboard.job_name == "a");
  CHECK(config.csv_monitor.enabled);
  CHECK(config.csv_monitor.output_path.empty());
  CHECK(config.csv_monitor.job_name == "DeepSpeedJobName");
  CHECK(config.flops_profiler.enabled);
  CHECK(config.flops_profiler.recompute_fwd_factor == 1);
  CHECK(config.flops_profiler.profile_step == 3);
  CHECK(config.flops_profiler.module_depth == 2);
  CHECK(config.flops_profiler.top_modules == 4);
  CHECK(!config.flops_profiler.detailed);
  CHECK(config.flops_profiler.output_file == "flops.txt");
  CHECK(config.comms_logger.enabled);
  CHECK(!config.comms_logger.prof_all);
  CHECK(config.comms_logger.prof_ops == std::vector<std::string>{"all_reduce"});
  CHECK(config.comms_logger.verbose);
  CHECK(config.comms_logger.debug);
}

TEST_CASE("without their sections all monitors are off", "[config][monitoring_rules]") {
  const JobConfig config = load("{}").config;
  CHECK(!config.tensorboard.enabled);
  CHECK(!config.csv_monitor.enabled);
  CHECK(!config.flops_profiler.enabled);
  CHECK(!config.comms_logger.enabled);
  CHECK(!config.wall_clock_breakdown);
  CHECK(!config.memory_breakdown);
  CHECK(!config.deepspeed_lines);
  CHECK(config.throughput_timer);
  CHECK(config.steps_per_print == 10);
}

TEST_CASE("collectives to log are known by DeepSpeed's names", "[config][monitoring_rules]") {
  SECTION("a typo is an error with the name that was meant") {
    auto result = load("{comms_logger: {enabled: true, prof_all: false, prof_ops: [\"all_reduec\"]}}");
    REQUIRE(result.issues.size() == 1);
    CHECK_THAT(lines_of(result).front(), Contains("all_reduec") && Contains("did you mean 'all_reduce'?"));
  }
  SECTION("one that is dslaunch never issues is said") {
    auto result = load("{comms_logger: {enabled: true, prof_all: false, prof_ops: [\"all_to_all\"]}}");
    CHECK(result.ok());
    CHECK(has_note(result, "dslaunch never issues"));
    CHECK(has_note(result, "logs nothing"));
  }
  SECTION("what quantized gradients and pipeline stages travel by is issued here") {
    for (const char* name : {"all_to_all_single", "send", "recv", "batch_isend_irecv"}) {
      auto result = load(std::string("{comms_logger: {enabled: true, prof_all: false, prof_ops: [\"") + name + "\"]}}");
      CHECK(result.ok());
      CHECK_FALSE(has_note(result, "dslaunch never issues"));
      CHECK_FALSE(has_note(result, "logs nothing"));
    }
  }
}
