#include "runtime/telemetry/run_events.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/telemetry/metrics_file.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using Json = nlohmann::json;

TEST_CASE("starts, checkpoints and ends of a run are lines of its events", "[runtime][telemetry][run_events]") {
  const test::TempDir dir;
  for (int64_t step : {0, 20}) {  // a resumed run appends
    RunEvents events(dir / "events.jsonl");
    events.start({.step = step, .total_steps = 40, .environment = {{"torch", "2.11"}, {"host", "a\"b"}}});
    events.checkpoint(step + 10, 12.5);
    events.end(step + 20, /*stopped=*/step == 0);
  }
  std::vector<Json> lines;
  std::istringstream in(test::read_file(dir / "events.jsonl"));
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  REQUIRE(lines.size() == 6);
  CHECK(lines[0].at("event") == "start");
  CHECK(lines[0].at("environment") == Json({{"torch", "2.11"}, {"host", "a\"b"}}));
  CHECK(lines[0].at("time") > 1.7e9);
  CHECK(lines[1] == Json({{"time", 12.5}, {"event", "checkpoint"}, {"step", 10}}));
  CHECK(lines[2].at("outcome") == "stopped");
  CHECK(lines[3].at("step") == 20);
  CHECK(lines[5].at("outcome") == "finished");
}

TEST_CASE("events that cannot be written cost no run", "[runtime][telemetry][run_events]") {
  const test::TempDir dir;
  RunEvents nowhere(dir / "no/events.jsonl"), full("/dev/full");
  nowhere.start({});
  full.checkpoint(1, 1);
  full.end(1, false);
}

TEST_CASE("the machine is described by what the kernel shows", "[runtime][telemetry][run_events]") {
  const auto machine = describe_machine();
  const auto has = [&](const std::string& name) {
    return std::any_of(machine.begin(), machine.end(),
                       [&](const auto& each) { return each.first == name && !each.second.empty(); });
  };
  CHECK(has("kernel"));
  CHECK(has("cores"));
  CHECK(has("host_memory"));
}

TEST_CASE("the phases of a step are keys of its metrics only where they are measured",
          "[runtime][telemetry][metrics]") {
  StepMetrics metrics{.step = 3};
  CHECK_FALSE(Json::parse(to_json_line(metrics)).contains("forward_ms"));
  metrics.forward_ms = 1.5;
  metrics.backward_ms = 3;
  metrics.reduce_ms = 0.25;
  metrics.update_ms = 0;
  const Json line = Json::parse(to_json_line(metrics));
  CHECK(line.at("forward_ms") == 1.5);
  CHECK(line.at("backward_ms") == 3);
  CHECK(line.at("reduce_ms") == 0.25);
  CHECK(line.at("update_ms") == 0);
}
