// `dslaunch bench adam`: what it says of rates, and that it measures them.
#include "apps/launcher/adam_bench.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/launcher/commands.hpp"
#include "support/captured_output.hpp"

using namespace dslaunch;
using launcher::AdamBenchReport;
using runtime::optim::host::ElementType;
using runtime::optim::host::RoundOptimizer;

namespace {

// One thread computes, two have what their cores get, eight the whole memory.
AdamBenchReport some_report() {
  AdamBenchReport out;
  out.num_parameters = 1 << 25;
  out.instruction_set = "AVX2";
  out.num_cores = 8;
  out.by_threads = {{RoundOptimizer::kAdam, 1, 28, 5e9, 10e9},
                    {RoundOptimizer::kAdam, 2, 28, 18e9, 19e9},
                    {RoundOptimizer::kAdam, 4, 28, 27.5e9, 29e9},
                    {RoundOptimizer::kAdam, 8, 28, 28e9, 30e9}};
  out.by_optimizer = {out.by_threads.back(), {RoundOptimizer::kLion, 8, 20, 20e9, 29e9}};
  return out;
}

}  // namespace

TEST_CASE("bench adam says what binds each row, and how many threads are enough", "[launcher][bench]") {
  const auto report = some_report();
  CHECK(binding(report.by_threads[0], report) == "arithmetic");
  CHECK(binding(report.by_threads[1], report) == "memory of these cores");
  CHECK(binding(report.by_threads[2], report) == "memory");
  CHECK(binding(report.by_optimizer[1], report) == "arithmetic");
  CHECK(enough_threads(report) == 4);
  const auto text = describe(report, false);
  INFO(text);
  CHECK_THAT(text, Catch::StartsWith("33,554,432 parameters in fp32 with their moments, bf16 gradients and parameters; "
                                     "AVX2, 8 cores\n") &&
                       Catch::Contains("AdamW                1     28           560.0         5.00        10.00    0.50"
                                       "  arithmetic\n") &&
                       Catch::Contains("\nAdamW updates 1e9 parameters in 1.00 s; 4 threads are enough\n"));
}

TEST_CASE("bench adam --json has every rate in bytes per second", "[launcher][bench]") {
  const auto document = nlohmann::json::parse(describe(some_report(), true));
  CHECK(document["by_threads"][1] == nlohmann::json{{"optimizer", "AdamW"},
                                                    {"num_threads", 2},
                                                    {"bytes_per_parameter", 28},
                                                    {"update_bytes_per_second", 18e9},
                                                    {"stream_bytes_per_second", 19e9},
                                                    {"bound_by", "memory of these cores"}});
  CHECK(document["by_optimizer"][1]["optimizer"] == "Lion");
  CHECK(document["enough_threads"] == 4);
  CHECK(document["seconds_per_billion_parameters"] == 1.0);
}

TEST_CASE("threads double up to the cores", "[launcher][bench]") {
  CHECK(launcher::thread_counts(1) == std::vector<int>{1});
  CHECK(launcher::thread_counts(2) == std::vector<int>{1, 2});
  CHECK(launcher::thread_counts(12) == std::vector<int>{1, 2, 4, 8, 12});
}

TEST_CASE("an update moves the state, its gradient and the parameters", "[launcher][bench]") {
  CHECK(bytes_of_update(RoundOptimizer::kAdam, ElementType::kBFloat16) == 28);
  CHECK(bytes_of_update(RoundOptimizer::kAdam, ElementType::kFloat32) == 30);
  CHECK(bytes_of_update(RoundOptimizer::kLion, ElementType::kFloat16) == 20);
}

TEST_CASE("bench adam measures this machine", "[launcher][bench]") {
  std::string text;
  {
    const test::CapturedOutput out(1);
    launcher::dispatch({"bench", "adam", "--params", "1e6", "--seconds", "1", "--json"});
    text = out.text();
  }
  INFO(text);
  const auto document = nlohmann::json::parse(text);
  CHECK(document["num_parameters"] == 983040);  // whole ranges of 32,768
  CHECK(document["by_threads"].size() >= 1);
  CHECK(document["by_optimizer"].size() == 4);
  for (const auto& row : document["by_optimizer"]) {
    CHECK(row["update_bytes_per_second"] > 1e8);
    CHECK(row["stream_bytes_per_second"] > 1e8);
  }
}
