#include "launch/supervisor/restart.hpp"

#include <catch2/catch.hpp>

using namespace dslaunch::launch;

namespace {

JobReport failed_with(int exit_code, const std::vector<std::string>& lost = {}) {
  JobReport report;
  report.outcome.exit_code = exit_code;
  for (const auto& host : lost) report.host_failures.push_back({host, {}});
  return report;
}

LaunchOptions allowing(int restarts, std::optional<int> min_nodes = {}) {
  LaunchOptions options;
  options.max_restarts = restarts;
  options.min_nodes = min_nodes;
  return options;
}

}  // namespace

TEST_CASE("a failed job is restarted while restarts are left", "[launch][restart]") {
  CHECK(decide_restart(failed_with(1), JobKind::kExec, allowing(2), 0, 1).restart);
  CHECK(decide_restart(failed_with(137), JobKind::kRun, allowing(2), 1, 1).restart);
  auto used_up = decide_restart(failed_with(1), JobKind::kExec, allowing(2), 2, 1);
  CHECK_FALSE(used_up.restart);
  CHECK_THAT(used_up.text, Catch::Contains("2 of 2"));
  CHECK_FALSE(decide_restart(failed_with(1), JobKind::kExec, allowing(0), 0, 1).restart);
  CHECK_FALSE(decide_restart(failed_with(0), JobKind::kExec, allowing(2), 0, 1).restart);
}

TEST_CASE("a stopped job, or one that would fail again, is not restarted", "[launch][restart]") {
  JobReport interrupted = failed_with(130);
  interrupted.reason = StopReason::kInterrupt;
  CHECK_FALSE(decide_restart(interrupted, JobKind::kExec, allowing(2), 0, 1).restart);
  for (StopReason late : {StopReason::kTerminate, StopReason::kCommand, StopReason::kTimeLimit}) {
    JobReport failed_before = failed_with(137);
    failed_before.late_reason = late;
    auto decision = decide_restart(failed_before, JobKind::kRun, allowing(2), 0, 1);
    CHECK_FALSE(decision.restart);
    CHECK(decision.instead == late);
    CHECK_THAT(decision.text, Catch::StartsWith("no restart: "));
    // The failure's own code stands where there would have been no restart.
    CHECK(decide_restart(failed_before, JobKind::kRun, allowing(2), 2, 1).instead == StopReason::kNone);
    CHECK(decide_restart(failed_before, JobKind::kRun, allowing(0), 0, 1).instead == StopReason::kNone);
  }
  CHECK_FALSE(decide_restart(failed_with(75), JobKind::kRun, allowing(2), 0, 1).restart);
  JobReport told = failed_with(143);
  told.agent_terminated = true;
  CHECK_FALSE(decide_restart(told, JobKind::kExec, allowing(2), 0, 1).restart);
  for (int code : {64, 65, 66, 73, 76, 77, 78}) {
    CHECK_FALSE(decide_restart(failed_with(code), JobKind::kRun, allowing(2), 0, 1).restart);
    CHECK(decide_restart(failed_with(code), JobKind::kExec, allowing(2), 0, 1).restart);
  }
}

TEST_CASE("lost hosts are left out only with --min_nodes, and while enough are left", "[launch][restart]") {
  auto all_again = decide_restart(failed_with(69, {"c"}), JobKind::kRun, allowing(1), 0, 3);
  CHECK((all_again.restart && all_again.without.empty()));
  auto fewer = decide_restart(failed_with(69, {"c"}), JobKind::kRun, allowing(1, 2), 0, 3);
  CHECK((fewer.restart && fewer.without == std::vector<std::string>{"c"}));
  auto too_few = decide_restart(failed_with(69, {"b", "c"}), JobKind::kRun, allowing(1, 2), 0, 3);
  CHECK_FALSE(too_few.restart);
  CHECK_THAT(too_few.text, Catch::Contains("1 of 3") && Catch::Contains("--min_nodes is 2"));
}

TEST_CASE("the global batch is kept and split again, or refused", "[launch][restart]") {
  for (int64_t global : {1, 7, 32, 96, 1000}) {
    for (int64_t before : {1, 3, 4, 8}) {
      for (int64_t world = 1; world <= 12; ++world) {
        auto split = split_batch(global, before, world);
        REQUIRE(split.has_value() == (global % world == 0));
        if (!split) continue;
        CHECK(split->micro_batch * split->accumulation * world == global);
        CHECK(split->micro_batch <= before);
        // The largest that fits.
        for (int64_t larger = split->micro_batch + 1; larger <= before; ++larger) CHECK(global % (larger * world) != 0);
      }
    }
  }
}
