// What the start of a run leaves in its directory, and which command continues the run afterwards.
#include "launch/commands/run_start.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include "launch/commands/continue_line.hpp"
#include "launch/records/job_dirs.hpp"
#include "launch/records/private_files.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
namespace fs = std::filesystem;

namespace {

// A directory with three steps and a checkpoint, of job "first".
struct EarlierRun {
  test::TempDir dir;

  EarlierRun() {
    write_run_record(dir.path(), {"first", 100, 1, 2, "", {"dslaunch", {"good.pt"}, "/data"}});
    dir.write("metrics.jsonl", "{\"step\":3}\n");
    fs::create_directories(dir / "checkpoints/step_00000003");
    dir.write("checkpoints/step_00000003/manifest.json", "{}");
  }
  RunStart start() const {
    RunStart start;
    start.look_at(dir.path(), /*keeps_run=*/true);
    start.record({"second", 200, 3, 4, "first", {"dslaunch", {"bad.pt", "--resume", "auto"}, "/data"}}, true);
    return start;
  }
};

LaunchPlan plan_in(const std::string& run_dir) {
  LaunchPlan plan;
  plan.kind = JobKind::kRun;
  plan.job_id = "second";
  plan.run_dir = run_dir;
  plan.start = {"dslaunch", {"bad.pt", "--run_dir", "runs/a", "--resume", "auto"}, "/data"};
  return plan;
}

}  // namespace

TEST_CASE("a start without a step leaves the record of the start before it", "[launch][run_start]") {
  const EarlierRun run;
  RunStart start = run.start();
  CHECK(read_run_record(run.dir.path())->job_id == "second");
  CHECK_FALSE(start.has_step());
  SECTION("without a step") {
    start.take_back();
    const auto record = read_run_record(run.dir.path());
    REQUIRE(record);
    CHECK(record->job_id == "first");
    CHECK(record->start.words == std::vector<std::string>{"good.pt"});
  }
  SECTION("with one") {
    run.dir.write("metrics.jsonl", "{\"step\":3}\n{\"step\":4}\n");
    CHECK(start.has_step());
    start.take_back();
    CHECK(read_run_record(run.dir.path())->job_id == "second");
  }
}

TEST_CASE("a directory that a start has created goes with it", "[launch][run_start]") {
  const test::TempDir root;
  RunStart start;
  start.look_at(root / "run", /*keeps_run=*/true);
  fs::create_directory(root / "run");
  start.record({"j", 200, 3, 4, "", {}}, /*may_remove=*/true);
  start.take_back();
  CHECK_FALSE(fs::exists(root / "run"));
}

TEST_CASE("the command that continues a run at its end", "[launch][run_start]") {
  const EarlierRun run;
  const LaunchPlan plan = plan_in(run.dir.path());
  const std::string to_continue =
      "to continue: cd /data && dslaunch bad.pt --run_dir " + run.dir.path() + " --resume auto";
  // A command that was refused is not proposed again.
  CHECK(continue_line(plan, {.exit_code = 65}).empty());
  CHECK(continue_line(plan, {.exit_code = 65, .has_step = true}) == to_continue);
  CHECK(continue_line(plan, {.exit_code = 69}) == to_continue);
  CHECK(continue_line(plan, {.exit_code = 130, .was_stopped = true}) == to_continue);
  // Two Ctrl-C during the first save.
  fs::rename(run.dir / "checkpoints/step_00000003", run.dir / "checkpoints/step_00000003.tmp");
  CHECK(continue_line(plan, {.exit_code = 130, .was_stopped = true}) ==
        "nothing was saved: no complete checkpoint in " + run.dir.path() +
            "; to start again: cd /data && dslaunch bad.pt --run_dir runs/a --overwrite");
  CHECK(continue_line(plan, {.exit_code = 139, .has_step = true}).empty());
}

TEST_CASE("a copied run directory is continued by its path, since its name is the original's id",
          "[launch][run_start]") {
  const test::TempDir state;
  const char* before = std::getenv("XDG_STATE_HOME");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("XDG_STATE_HOME", state.path().c_str(), 1);
  const EarlierRun original, copy;
  JobRecord record;
  record.job_id = "20260101-first";
  record.kind = JobKind::kRun;
  record.command = {"good.pt"};
  record.start = {"dslaunch", {"good.pt"}, "/data"};
  record.hosts = {{"localhost", 1}};
  record.run_dir = original.dir.path();
  record.supervisor = this_process();
  record.state = "running";
  write_private_file(make_job_dir(jobs_root(), record.job_id).record_file(), record_to_json(record));
  LaunchPlan plan = plan_in(copy.dir.path());
  plan.name = record.job_id;
  CHECK(resume_command(plan, /*on_record=*/true, {}) == "dslaunch resume " + copy.dir.path());
  plan.run_dir = original.dir.path();
  CHECK(resume_command(plan, /*on_record=*/true, {}) == "dslaunch resume second");
  before == nullptr ? ::unsetenv("XDG_STATE_HOME") : ::setenv("XDG_STATE_HOME", kept.c_str(), 1);
}
