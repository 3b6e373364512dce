#include "launch/doctor/judge.hpp"

#include <catch2/catch.hpp>

using namespace dslaunch;
using namespace dslaunch::launch;
using ports::Parenthood;

namespace {

struct Row {
  const char* who;
  bool ours, visible, runs_doctor;
  JobLife job;
  Parenthood parenthood;
  const char* service;
  Verdict verdict;
};

// contracts: a process is stale when it is this user's and either carries the id of a job of ours whose supervisor is
// gone, or has lost its parent and is no systemd service.
const Row kRows[] = {
    {"a worker of a dead job", true, true, false, JobLife::kGone, Parenthood::kAlive, "", Verdict::kStale},
    {"a dead job's, even as a service", true, true, false, JobLife::kGone, Parenthood::kLost, "x", Verdict::kStale},
    {"a rank of a living job", true, true, false, JobLife::kAlive, Parenthood::kAlive, "", Verdict::kAlive},
    {"an orphan within a living job", true, true, false, JobLife::kAlive, Parenthood::kLost, "", Verdict::kAlive},
    {"an orphan", true, true, false, JobLife::kNone, Parenthood::kLost, "", Verdict::kStale},
    {"an orphan of a job not in sight", true, true, false, JobLife::kUnknown, Parenthood::kLost, "", Verdict::kStale},
    {"a service", true, true, false, JobLife::kNone, Parenthood::kLost, "jupyter.service", Verdict::kAlive},
    {"a child", true, true, false, JobLife::kNone, Parenthood::kAlive, "", Verdict::kAlive},
    {"a job not in sight", true, true, false, JobLife::kUnknown, Parenthood::kAlive, "", Verdict::kAlive},
    {"a child of pid 1", true, true, false, JobLife::kNone, Parenthood::kUnclear, "", Verdict::kUnknown},
    {"one out of sight", true, false, false, JobLife::kNone, Parenthood::kLost, "", Verdict::kUnknown},
    {"the shell we run in", true, true, true, JobLife::kNone, Parenthood::kLost, "", Verdict::kAlive},
    {"the dead job we run in", true, true, true, JobLife::kGone, Parenthood::kLost, "", Verdict::kAlive},
    {"another user's orphan", false, true, false, JobLife::kNone, Parenthood::kLost, "", Verdict::kForeign},
    {"another user's dead job", false, true, false, JobLife::kGone, Parenthood::kLost, "", Verdict::kForeign},
    {"another user's out of sight", false, false, false, JobLife::kNone, Parenthood::kLost, "", Verdict::kForeign},
};

}  // namespace

TEST_CASE("who is stale", "[launch][doctor]") {
  for (const auto& row : kRows) {
    CAPTURE(row.who);
    auto judgement =
        judge({row.visible, row.ours, row.runs_doctor, row.job, "job-1", row.parenthood, "pid 7 (bash)", row.service});
    CHECK(judgement.verdict == row.verdict);
    CHECK_FALSE(judgement.reason.empty());
  }
}

TEST_CASE("children of what is stale are stale, whatever their order", "[launch][doctor]") {
  auto finding = [](pid_t pid, pid_t parent, Verdict verdict, bool parent_decides) {
    Finding made;
    made.process = {pid, 1};
    made.parent = parent;
    made.verdict = verdict;
    made.parent_decides = parent_decides;
    return made;
  };
  std::vector<Finding> findings{
      finding(12, 11, Verdict::kAlive, true),                                           // grandchild
      finding(11, 10, Verdict::kAlive, true),                                           // child
      finding(10, 1, Verdict::kStale, false), finding(13, 10, Verdict::kAlive, false),  // a job of its own, which lives
      finding(21, 20, Verdict::kAlive, true), finding(20, 1, Verdict::kUnknown, false),
  };
  pass_staleness_on(findings);
  std::vector<Verdict> verdicts;
  for (const auto& one : findings) verdicts.push_back(one.verdict);
  CHECK(verdicts == std::vector<Verdict>{Verdict::kStale, Verdict::kStale, Verdict::kStale, Verdict::kAlive,
                                         Verdict::kAlive, Verdict::kUnknown});
}
