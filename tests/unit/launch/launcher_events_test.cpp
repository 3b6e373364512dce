#include "launch/supervisor/launcher_events.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace std::chrono_literals;
using Json = nlohmann::json;

namespace {

LaunchPlan plan_in(const test::TempDir& dir) {
  LaunchPlan plan;
  plan.job_id = "J1";
  plan.kind = JobKind::kRun;
  plan.run_dir = dir.path();
  plan.cwd = dir.path();
  plan.argv = {"dsworker", "train"};
  plan.nodes.push_back({.host = "a",
                        .user = {},
                        .port = {},
                        .program = {},
                        .ranks = {{.rank = 0, .env = {}, .placement = {}}, {.rank = 1, .env = {}, .placement = {}}}});
  return plan;
}

std::vector<Json> lines_in(const test::TempDir& dir) {
  std::vector<Json> lines;
  std::istringstream in(test::read_file(dir / "launcher.jsonl"));
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  return lines;
}

}  // namespace

TEST_CASE("attempts and samples of a run are lines in its directory", "[launch][launcher_events]") {
  const test::TempDir dir;
  const LaunchPlan plan = plan_in(dir);
  FileThread files;
  LauncherEvents events(files);
  events.launched(plan);
  events.sampled(
      plan,
      {{.step = 5, .step_ms = 2.5, .busy_ms = {}, .gpu_mem_bytes = {}, .host_mem_bytes = 100, .waiting = true}, {}});
  JobReport report;
  report.outcome.exit_code = 3;
  events.ended(plan, report, /*restarts=*/true, 7, 99.5);
  REQUIRE(files.wait(Deadline::after(10s)));
  CHECK(files.take_errors().empty());
  const auto lines = lines_in(dir);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].at("event") == "launch");
  CHECK(lines[0].at("world_size") == 2);
  CHECK(lines[0].at("hosts") == Json::parse(R"([{"host":"a","ranks":2}])"));
  CHECK(lines[1].at("step") == Json::parse("[5,null]"));
  CHECK(lines[1].at("waiting") == Json::parse("[true,null]"));
  CHECK_FALSE(lines[1].contains("gpu_mem_bytes"));  // no rank reports it
  CHECK(lines[2].at("exit_code") == 3);
  CHECK(lines[2].at("step") == 7);
  CHECK(lines[2].at("restarts") == true);
  CHECK(lines[2].at("time") == 99.5);
}

TEST_CASE("an exec and an evaluation leave no record in the directory", "[launch][launcher_events]") {
  const test::TempDir dir;
  LaunchPlan plan = plan_in(dir);
  CHECK(LauncherEvents::records(plan));
  plan.argv.emplace_back("--eval_only");
  CHECK_FALSE(LauncherEvents::records(plan));
  plan = plan_in(dir);
  plan.kind = JobKind::kExec;
  CHECK_FALSE(LauncherEvents::records(plan));
  FileThread files;
  LauncherEvents(files).launched(plan);
  REQUIRE(files.wait(Deadline::after(10s)));
  CHECK_FALSE(std::ifstream(dir / "launcher.jsonl").good());
}

TEST_CASE("a directory that cannot be written costs the line, with a warning", "[launch][launcher_events]") {
  const test::TempDir dir;
  LaunchPlan plan = plan_in(dir);
  plan.run_dir += "/gone";
  FileThread files;
  LauncherEvents(files).sampled(plan, {});
  REQUIRE(files.wait(Deadline::after(10s)));
  REQUIRE(files.take_errors().size() == 1);
}
