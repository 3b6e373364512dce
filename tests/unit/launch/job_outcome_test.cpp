#include "launch/supervisor/job_outcome.hpp"

#include <catch2/catch.hpp>
#include <csignal>

using namespace dslaunch::launch;
using dslaunch::spawn::ExitCause;

namespace {

ExitCause exited(int code) {
  return {.kind = ExitCause::Kind::kExited, .number = code};
}
ExitCause killed(int signal) {
  return {.kind = ExitCause::Kind::kSignaled, .number = signal};
}

struct End {
  ExitCause cause;
  int order;
  bool stopped = false;
};

JobOutcome outcome(const std::vector<End>& ends, StopReason reason = StopReason::kNone, JobKind kind = JobKind::kRun,
                   int agent_error = 0) {
  std::vector<RankRecord> records;
  for (const End& end : ends) {
    records.push_back({.rank = static_cast<int>(records.size()),
                       .cause = end.cause,
                       .stopped_by_us = end.stopped,
                       .order = end.order});
  }
  return decide_outcome(records, kind, reason, agent_error);
}

}  // namespace

TEST_CASE("a job succeeds only when every rank did", "[launch][job_outcome]") {
  CHECK(outcome({{exited(0), 0}, {exited(0), 1}}).exit_code == 0);
  CHECK_FALSE(outcome({{exited(0), 0}}).first_failure.has_value());
  CHECK(outcome({{exited(0), 0}, {exited(3), 1}}).exit_code == 3);
}

TEST_CASE("a rank whose exit was not observed is not a success", "[launch][job_outcome]") {
  std::vector<RankRecord> records(2);
  records[0].cause = exited(0);
  CHECK(decide_outcome(records, JobKind::kRun, StopReason::kNone, 0).exit_code == 70);
}

TEST_CASE("the first failure is the first in time, not in rank", "[launch][job_outcome]") {
  auto result = outcome({{exited(65), 2}, {exited(76), 1}, {exited(0), 0}});
  CHECK(result.first_failure == 1);
  CHECK(result.exit_code == 76);
}

TEST_CASE("a worker without its libraries counts as unavailable; other programs keep their code",
          "[launch][job_outcome]") {
  CHECK(outcome({{exited(127), 0}}).exit_code == 69);
  CHECK(outcome({{exited(127), 0}}, StopReason::kNone, JobKind::kExec).exit_code == 127);
}

TEST_CASE("a scheduler's warnings end a run and are passed on to programs", "[launch][job_outcome]") {
  for (int signal : {SIGUSR1, SIGUSR2}) {
    CHECK(is_stop_signal(signal, JobKind::kRun));
    CHECK_FALSE(is_stop_signal(signal, JobKind::kExec));
  }
  for (JobKind kind : {JobKind::kRun, JobKind::kExec}) {
    CHECK(is_stop_signal(SIGTERM, kind));
    CHECK_FALSE(is_stop_signal(SIGTSTP, kind));
  }
}

TEST_CASE("a signal gives 128 plus its number", "[launch][job_outcome]") {
  CHECK(outcome({{exited(0), 0}, {killed(SIGKILL), 1}}).exit_code == 137);
  CHECK(outcome({{killed(SIGSEGV), 0}}).exit_code == 139);
}

TEST_CASE("a rank that lost a peer is not the first failure if another rank failed", "[launch][job_outcome]") {
  auto result = outcome({{exited(71), 0}, {exited(71), 1}, {killed(SIGKILL), 2}});
  CHECK(result.first_failure == 2);
  CHECK(result.exit_code == 137);
}

TEST_CASE("the lost peer is the first failure even if it was slow and was stopped", "[launch][job_outcome]") {
  for (const ExitCause& own : {exited(76), killed(SIGSEGV)}) {
    auto result = outcome({{exited(71), 0}, {killed(SIGTERM), 1, true}, {own, 2, true}});
    CHECK(result.first_failure == 2);
    CHECK(result.exit_code == (own == exited(76) ? 76 : 139));
  }
  for (const ExitCause& told : {exited(71), exited(75), killed(SIGKILL)}) {
    CHECK(outcome({{exited(71), 0}, {told, 1, true}}).first_failure == 0);
  }
  CHECK(outcome({{exited(9), 0}, {exited(76), 1, true}}).first_failure == 0);
}

TEST_CASE("lost peers alone are an internal error in a run, and the program's own code in exec",
          "[launch][job_outcome]") {
  auto result = outcome({{exited(71), 1}, {exited(71), 0}});
  CHECK(result.first_failure == 1);
  CHECK(result.exit_code == 70);
  CHECK(outcome({{exited(71), 0}}, StopReason::kNone, JobKind::kExec).exit_code == 71);
}

TEST_CASE("a program of exec that ends with a worker's code for a lost peer has failed by itself",
          "[launch][job_outcome]") {
  auto result = outcome({{exited(71), 0}, {killed(SIGKILL), 1}}, StopReason::kNone, JobKind::kExec);
  CHECK(result.first_failure == 0);
  CHECK(result.exit_code == 71);
  CHECK(outcome({{exited(71), 0, true}}, StopReason::kTerminate, JobKind::kExec).exit_code == 71);
  CHECK_FALSE(lost_peer(exited(71), JobKind::kExec));
  CHECK(lost_peer(exited(71), JobKind::kRun));
}

TEST_CASE("a rank that we stopped is not the first failure", "[launch][job_outcome]") {
  auto result = outcome({{killed(SIGTERM), 0, true}, {exited(9), 1, false}});
  CHECK(result.first_failure == 1);
  CHECK(result.exit_code == 9);
}

TEST_CASE("Ctrl-C is 130 and a time limit 124, whatever the ranks say", "[launch][job_outcome]") {
  CHECK(outcome({{exited(0), 0}}, StopReason::kInterrupt).exit_code == 130);
  CHECK(outcome({{killed(SIGTERM), 0, true}}, StopReason::kInterrupt).exit_code == 130);
  CHECK(outcome({{killed(SIGKILL), 0, true}}, StopReason::kQuit).exit_code == 131);
  CHECK(outcome({{killed(SIGKILL), 0, true}}, StopReason::kTimeLimit).exit_code == 124);
}

TEST_CASE("after SIGTERM it is 75 if all ranks ended with 75, else by cause", "[launch][job_outcome]") {
  auto stopped = [](std::vector<ExitCause> causes, JobKind kind = JobKind::kRun) {
    std::vector<End> ends;
    for (auto& cause : causes) ends.push_back({cause, static_cast<int>(ends.size()), true});
    return outcome(ends, StopReason::kTerminate, kind).exit_code;
  };
  CHECK(stopped({exited(75), exited(75)}) == 75);
  CHECK(stopped({exited(75), exited(71)}) == 75);
  CHECK(stopped({exited(75), exited(0)}) == 75);
  CHECK(stopped({exited(75), killed(SIGKILL)}) == 137);
  CHECK(stopped({killed(SIGTERM), killed(SIGTERM)}, JobKind::kExec) == 143);
  // A worker that had nothing to save yet.
  CHECK(stopped({killed(SIGTERM), exited(75)}) == 75);
  CHECK(stopped({killed(SIGTERM), killed(SIGKILL)}) == 137);
  CHECK(stopped({exited(0), exited(0)}) == 0);
}

TEST_CASE("a failure before the stop keeps its code", "[launch][job_outcome]") {
  CHECK(outcome({{exited(74), 0, false}, {exited(75), 1, true}}, StopReason::kTerminate).exit_code == 74);
}

TEST_CASE("an agent that could not do its part gives the code", "[launch][job_outcome]") {
  std::vector<RankRecord> records(2);
  CHECK(decide_outcome(records, JobKind::kExec, StopReason::kNone, 69).exit_code == 69);
}

TEST_CASE("a job whose agent was signalled may be run again if its ranks could save", "[launch][job_outcome]") {
  auto told = [](const std::vector<End>& ends) {
    return outcome(ends, StopReason::kNone, JobKind::kRun, 75).exit_code;
  };
  CHECK(told({{exited(75), 0, true}, {exited(75), 1, true}}) == 75);
  CHECK(told({{exited(75), 0, true}, {killed(SIGKILL), 1, true}}) == 137);
  CHECK(told({{exited(74), 0}, {exited(75), 1, true}}) == 74);
  CHECK(told({{exited(0), 0}, {exited(0), 1}}) == 0);
}

TEST_CASE("a signal that reaches the ranks before the stop request is not a failure", "[launch][job_outcome]") {
  const auto told =
      outcome({{exited(75), 0}, {killed(SIGTERM), 1}, {exited(71), 2}, {exited(75), 3, true}}, StopReason::kTerminate);
  CHECK_FALSE(told.first_failure);
  CHECK(told.exit_code == 75);
  CHECK(outcome({{killed(SIGTERM), 0}}, StopReason::kTerminate, JobKind::kExec).exit_code == 143);
  CHECK_FALSE(outcome({{killed(SIGTERM), 0}}, StopReason::kNone, JobKind::kExec, 75).first_failure);
  CHECK(outcome({{killed(SIGTERM), 0}}).first_failure == 0);  // somebody signalled that rank alone
  CHECK(outcome({{killed(SIGSEGV), 0}}, StopReason::kTerminate).first_failure == 0);
}

TEST_CASE("a rank that no signal ended has not saved", "[launch][job_outcome]") {
  std::vector<RankRecord> records(2);
  records[0].cause = exited(75);
  records[0].stopped_by_us = true;
  records[1].stuck = dslaunch::spawn::StuckProcess{4711, 1, 'D', ""};
  records[1].stopped_by_us = true;
  CHECK(decide_outcome(records, JobKind::kRun, StopReason::kTerminate, 0).exit_code == 137);
  CHECK(decide_outcome(records, JobKind::kRun, StopReason::kNone, 75).exit_code == 137);
  CHECK(decide_outcome(records, JobKind::kRun, StopReason::kInterrupt, 0).exit_code == 130);
}

TEST_CASE("only dslaunch's own exit codes have a meaning", "[launch][job_outcome]") {
  for (int code : {64, 65, 66, 69, 70, 71, 73, 74, 75, 76, 77, 78, 124, 130})
    CHECK_FALSE(meaning_of_code(code).empty());
  for (int code : {1, 2, 3, 127, 255}) CHECK(meaning_of_code(code).empty());
}
