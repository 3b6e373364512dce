#include "launch/supervisor/failure_summary.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace dslaunch::launch;
using dslaunch::spawn::ExitCause;

namespace {

LaunchPlan plan_of(JobKind kind) {
  LaunchPlan plan;
  plan.job_id = "j";
  plan.kind = kind;
  plan.run_dir = "/runs/j";
  return plan;
}

std::vector<RankRecord> one_killed() {
  ExitCause killed{.kind = ExitCause::Kind::kSignaled, .number = 9};
  ExitCause lost{.kind = ExitCause::Kind::kExited, .number = 71};
  return {{.rank = 0, .host = "a", .pid = 10, .cause = lost, .order = 0, .output_tail = "noise"},
          {.rank = 1,
           .host = "b",
           .pid = 11,
           .cause = killed,
           .order = 1,
           .output_tail = "first\nlast words",
           .has_output = true},
          {.rank = 2, .host = "b", .pid = 12, .cause = lost, .stopped_by_us = true, .order = 2}};
}

JobReport report_of(const std::vector<RankRecord>& records, JobKind kind, StopReason reason = StopReason::kNone) {
  JobReport report;
  report.records = records;
  report.reason = reason;
  report.outcome = decide_outcome(records, kind, reason, 0);
  return report;
}

std::string summary(const std::vector<RankRecord>& records, JobKind kind, StopReason reason = StopReason::kNone) {
  return format_summary(plan_of(kind), report_of(records, kind, reason));
}

}  // namespace

TEST_CASE("the summary ends with the first failed rank, its host, cause and last output", "[launch][failure_summary]") {
  std::string text = summary(one_killed(), JobKind::kRun);
  CHECK_THAT(text, Catch::Contains("rank 1 on b failed first: killed by SIGKILL (signal 9)"));
  CHECK_THAT(text, Catch::Contains("/runs/j/logs/b.1.log"));
  CHECK_THAT(text, Catch::EndsWith("  | first\n  | last words\n"));
  CHECK(text.find("rank 2: stopped by dslaunch") < text.find("rank 1 on b"));
}

TEST_CASE("what a worker has just said is not said again", "[launch][failure_summary]") {
  std::vector<RankRecord> records{{.rank = 0,
                                   .host = "a",
                                   .pid = 10,
                                   .cause = ExitCause{.kind = ExitCause::Kind::kExited, .number = 65},
                                   .order = 0,
                                   .output_tail = "error: no such column",
                                   .tail_is_shown = true,
                                   .has_output = true}};
  CHECK_THAT(summary(records, JobKind::kRun), !Catch::Contains("no such column"));
  CHECK_THAT(summary(records, JobKind::kExec), Catch::Contains("no such column"));
  CHECK_THAT(summary(records, JobKind::kRun), Catch::Contains("its output: /runs/j/logs/a.0.log"));
  records[0].has_log = false;  // it moves
  CHECK_THAT(summary(records, JobKind::kRun), !Catch::Contains("its output"));
  records[0].tail_is_shown = false;
  CHECK_THAT(summary(records, JobKind::kRun), Catch::Contains("no such column"));
  records[0].tail_is_shown = true;
  records[0].cause = ExitCause{.kind = ExitCause::Kind::kSignaled, .number = 11};
  CHECK_THAT(summary(records, JobKind::kRun), Catch::Contains("no such column"));
}

TEST_CASE("ranks that fail alike have one text", "[launch][failure_summary]") {
  const ExitCause crash{
      .kind = ExitCause::Kind::kSignaled, .number = 11, .core_dumped = true, .hint = "a hint of many words"};
  std::vector<RankRecord> records;
  for (int rank = 0; rank < 4; ++rank) {
    records.push_back({.rank = rank, .host = "a", .pid = 10 + rank, .cause = crash, .order = (rank + 2) % 4});
  }
  CHECK(summary(records, JobKind::kRun) ==
        "dslaunch: ranks 0, 1, 3: also failed, in the same way as rank 2\n"
        "dslaunch: rank 2 on a failed first: killed by SIGSEGV (signal 11), core dumped: a hint of many words\n");
}

TEST_CASE("a rank that failed on its own during the stop is reported as failed", "[launch][failure_summary]") {
  auto records = one_killed();
  records[2].cause = ExitCause{.number = 65};
  CHECK_THAT(summary(records, JobKind::kRun), Catch::Contains("rank 2: also failed: exit code 65"));
  CHECK_THAT(summary(one_killed(), JobKind::kExec), Catch::Contains("rank 2: also failed, in the same way as rank 0"));
}

TEST_CASE("the first failed rank is reported as slow if it was stopped before it exited", "[launch][failure_summary]") {
  auto records = one_killed();
  records[1].cause = ExitCause{.number = 76};
  records[1].stopped_by_us = true;
  CHECK_THAT(
      summary(records, JobKind::kRun),
      Catch::Contains("rank 1 on b failed first (slow to exit, it was stopped with the other ranks): exit code 76"));
}

TEST_CASE("exit codes are explained for workers only", "[launch][failure_summary]") {
  std::vector<RankRecord> records{
      {.rank = 0, .host = "a", .cause = ExitCause{.kind = ExitCause::Kind::kExited, .number = 76}, .order = 0}};
  CHECK_THAT(summary(records, JobKind::kRun), Catch::Contains("training cannot continue"));
  CHECK_THAT(summary(records, JobKind::kExec), !Catch::Contains("training cannot continue"));
}

TEST_CASE("the last line says what stopped the job", "[launch][failure_summary]") {
  std::vector<RankRecord> records{
      {.rank = 0, .host = "a", .cause = ExitCause{.number = 75}, .stopped_by_us = true, .order = 0}};
  CHECK_THAT(summary(records, JobKind::kRun, StopReason::kInterrupt), Catch::EndsWith("interrupted by Ctrl-C\n"));
}

TEST_CASE("a successful job has no summary", "[launch][failure_summary]") {
  std::vector<RankRecord> records{{.rank = 0, .host = "a", .cause = ExitCause{}, .order = 0}};
  CHECK(summary(records, JobKind::kRun).empty());
}

TEST_CASE("the summary as JSON", "[launch][failure_summary]") {
  const JobReport report = report_of(one_killed(), JobKind::kRun);
  auto json = nlohmann::json::parse(summary_json(plan_of(JobKind::kRun), report, R"({"step":3})"));
  CHECK(json["exit_code"] == 137);
  CHECK(json["last_metrics"]["step"] == 3);
  CHECK(json["first_failure"]["rank"] == 1);
  CHECK(json["first_failure"]["signal"] == "SIGKILL");
  CHECK(json["host_failures"].empty());
  CHECK(json["ranks"].size() == 3);
  CHECK(json["ranks"][2]["stopped_by_us"] == true);
}

TEST_CASE("ranks that a scheduler signalled are reported as stopped, and the signal comes last",
          "[launch][failure_summary]") {
  std::vector<RankRecord> records{
      {.rank = 0, .host = "a", .cause = ExitCause{.number = 75}, .order = 0},
      {.rank = 1, .host = "b", .cause = ExitCause{.number = 75}, .stopped_by_us = true, .order = 1}};
  CHECK(summary(records, JobKind::kExec, StopReason::kTerminate) ==
        "dslaunch: rank 0: stopped by the signal (exit code 75)\ndslaunch: rank 1: stopped by dslaunch (exit code 75)\n"
        "dslaunch: the job ended: stopped by a signal\n");
  CHECK_THAT(summary(records, JobKind::kExec), Catch::Contains("rank 0 on a failed first: exit code 75"));
}

TEST_CASE("an unkillable rank is reported with host, process and wait channel", "[launch][failure_summary]") {
  auto records = one_killed();
  records[2].cause.reset();
  records[2].stuck = dslaunch::spawn::StuckProcess{12, 1, 'D', "rpc_wait_bit"};
  JobReport report = report_of(records, JobKind::kRun);
  report.stuck = {{2, "b", false, *records[2].stuck}, {-1, "a", true, {99, 1, 'R', ""}}};
  const std::string text = format_summary(plan_of(JobKind::kRun), report);
  CHECK_THAT(text, Catch::Contains("dslaunch: rank 2 on b: process 12 is stuck in the kernel (state D, wait channel "
                                   "rpc_wait_bit) and does not end, even by SIGKILL"));
  CHECK_THAT(text, Catch::Contains("dslaunch: a: process 99 has not ended after SIGKILL (state R)\n"));
  CHECK_THAT(text, !Catch::Contains("ended with its agent"));
  CHECK(text.find("rank 2 on b") < text.find("rank 1 on b failed first"));
  const auto document = nlohmann::json::parse(summary_json(plan_of(JobKind::kRun), report, R"({"step":)"));
  CHECK(document["last_metrics"].is_null());
  CHECK(document["ranks"][2]["exit_code"].is_null());
  CHECK(document["ranks"][2]["stuck"] == nlohmann::json{{"state", "D"}, {"wait_channel", "rpc_wait_bit"}});
  CHECK(document["ranks"][1]["stuck"].is_null());
  REQUIRE(document["stuck"].size() == 2);
  CHECK((document["stuck"][0]["rank"] == 2 && document["stuck"][0]["pid"] == 12));
  CHECK((document["stuck"][1]["rank"].is_null() && document["stuck"][1]["wait_channel"].is_null()));
}
