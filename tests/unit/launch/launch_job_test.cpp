// A job whose planner fails with what is none of our own errors.
#include "launch/commands/launch_job.hpp"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "launch/plan/plan_job.hpp"
#include "launch/records/job_record.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

class FailingMaker final : public JobPlanner {
 public:
  FailingMaker(LaunchOptions options, std::function<void()> at_plan, std::function<void()> at_prepare)
      : options_(std::move(options)), at_plan_(std::move(at_plan)), at_prepare_(std::move(at_prepare)) {}
  DeviceUser device_user() const override { return DeviceUser::kAnyProgram; }
  JobCommand command() const override { return {}; }
  LaunchPlan plan(const ResolvedHosts& hosts, int restart) override {
    if (restart > 0) at_plan_();
    LaunchPlan plan = plan_job(options_, hosts, DeviceRule::kAllOfNode);
    plan.argv = {"true"};
    plan.restart_count = restart;
    return plan;
  }
  void prepare(const LaunchPlan& plan) override {
    if (plan.restart_count > 0) at_prepare_();
  }

 private:
  LaunchOptions options_;
  std::function<void()> at_plan_, at_prepare_;
};

// Its agent is this very test program, which is none: so each attempt fails, and there is a restart.
int job_that_fails_at_restart(const std::function<void()>& at_plan, const std::function<void()>& at_prepare) {
  LaunchOptions options;
  options.device = DeviceChoice::kCpu;
  options.hosts.num_gpus = 1;
  options.max_restarts = 1;
  options.json = true;
  FailingMaker planner(options, at_plan, at_prepare);
  return launch_job(options, planner);
}

// A run without ranks of ours, in `run_dir`; it fails at once, likewise.
class RunPlanner final : public JobPlanner {
 public:
  RunPlanner(LaunchOptions options, std::string run_dir) : options_(std::move(options)), run_dir_(std::move(run_dir)) {}
  DeviceUser device_user() const override { return DeviceUser::kAnyProgram; }
  JobCommand command() const override { return {}; }
  LaunchPlan plan(const ResolvedHosts& hosts, int) override {
    LaunchPlan plan = plan_job(options_, hosts, DeviceRule::kAllOfNode);
    plan.kind = JobKind::kRun;
    plan.argv = {"true"};
    plan.run_dir = run_dir_;
    return plan;
  }

 private:
  LaunchOptions options_;
  std::string run_dir_;
};

int run_that_fails(const std::string& run_dir) {
  LaunchOptions options;
  options.device = DeviceChoice::kCpu;
  options.hosts.num_gpus = 1;
  options.json = true;
  RunPlanner planner(options, run_dir);
  return launch_job(options, planner);
}

struct Ended {
  int status = -1;
  std::string words, document;
  std::optional<JobRecord> record;
};

// In a process of its own, whose signals and standard error it may keep.
Ended in_own_process(const std::function<int()>& job) {
  test::TempDir dir;
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("XDG_STATE_HOME", dir.path().c_str(), 1);
    ::unsetenv("XDG_RUNTIME_DIR");
    if (std::freopen((dir / "err").c_str(), "w", stderr) == nullptr) ::_exit(1);
    if (std::freopen((dir / "out").c_str(), "w", stdout) == nullptr) ::_exit(1);
    try {
      ::_exit(job());
    } catch (...) {
      ::_exit(99);  // the main's
    }
  }
  Ended ended;
  int status = 0;
  ::waitpid(child, &status, 0);
  ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  ended.words = test::read_file(dir / "err");
  ended.document = test::read_file(dir / "out");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir.path())) {
    if (entry.path().filename() == "job.json") ended.record = record_from_json(test::read_file(entry.path()));
  }
  return ended;
}

void nothing() {}

}  // namespace

TEST_CASE("an end by any exception is reported and recorded", "[launch][launch_job]") {
  const Ended ended = in_own_process([] {
    return job_that_fails_at_restart(nothing, [] { throw std::filesystem::filesystem_error("status", "/far", {}); });
  });
  INFO(ended.words);
  CHECK(ended.status == 74);
  const auto document = nlohmann::json::parse(ended.document);
  CHECK(document["exit_code"] == 74);
  CHECK_THAT(document["error"].get<std::string>(), Catch::Matchers::Contains("/far"));
  CHECK_THAT(ended.words, Catch::Matchers::Contains("filesystem error: status"));
  REQUIRE(ended.record);
  REQUIRE(ended.record->end);
  CHECK(ended.record->end->exit_code == 74);
  CHECK_THAT(ended.record->end->first_cause, Catch::Matchers::Contains("/far"));
}

TEST_CASE("if planning fails there is no restart, and the outcome stays the failure's", "[launch][launch_job]") {
  const Ended ended = in_own_process([] {
    return job_that_fails_at_restart([] { throw std::filesystem::filesystem_error("status", "/far", {}); }, nothing);
  });
  INFO(ended.words);
  CHECK(ended.status == 70);  // what is no agent speaks no protocol
  CHECK_THAT(ended.words, Catch::Matchers::Contains("no restart: ") && Catch::Matchers::Contains("/far"));
  REQUIRE(ended.record);
  REQUIRE(ended.record->end);
  CHECK(ended.record->end->exit_code == 70);
}

TEST_CASE("metrics on a file server that does not answer do not block the end of a job", "[launch][launch_job]") {
  const test::TempDir run;
  REQUIRE(::mkfifo((run / "metrics.jsonl").c_str(), 0600) ==
          0);  // opening it waits for a writer, of which there is none
  const Ended ended = in_own_process([&] {
    ::alarm(20);
    return run_that_fails(run.path());
  });
  INFO(ended.words);
  CHECK(ended.status == 70);
  CHECK(nlohmann::json::parse(ended.document)["last_metrics"].is_null());
}

TEST_CASE("the document of a run has the last metrics", "[launch][launch_job]") {
  const test::TempDir run;
  std::ofstream(run / "metrics.jsonl") << R"({"step":1})" << std::endl << R"({"step":2})" << std::endl;
  const Ended ended = in_own_process([&] { return run_that_fails(run.path()); });
  INFO(ended.words);
  CHECK(ended.status == 70);
  CHECK(nlohmann::json::parse(ended.document)["last_metrics"]["step"] == 2);
}
