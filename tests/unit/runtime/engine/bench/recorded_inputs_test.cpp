#include "runtime/engine/bench/recorded_inputs.hpp"

#include <catch2/catch.hpp>

#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime::engine::bench;

TEST_CASE("recorded inputs become arrays that are made up", "[runtime][engine][bench]") {
  CHECK(recorded_inputs("", "m.pt").empty());
  CHECK(recorded_inputs(R"({"format": 1, "labels": "next"})", "m.pt").empty());
  const auto inputs = recorded_inputs(R"({"format": 1, "inputs": [
      {"name": "input_ids", "shape": [12], "dtype": "int64", "low": 3, "high": 97},
      {"name": "x", "shape": [3, 8, 8], "dtype": "float32", "low": 0, "high": 1}]})",
                                      "m.pt");
  REQUIRE(inputs.size() == 2);
  CHECK(inputs[0].name == "input_ids");
  CHECK(inputs[0].shape == std::vector<int64_t>{12});
  CHECK(inputs[0].low == 3);
  CHECK(inputs[1].dtype == "float32");
  CHECK(describe_inputs(inputs) == "input_ids (12) int64 below 97, x (3, 8, 8) float32");
  for (const char* damaged : {R"({"inputs": 3})", R"({"inputs": [{"name": "x"}]})", R"({"inputs": [{"name": 1}]})"}) {
    test::expect_error(ExitCode::kBadInput, {"'m.pt' has damaged metadata", "--data"},
                       [&] { recorded_inputs(damaged, "m.pt"); });
  }
}
