#include "launch/plan/run_dir.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

int code_for(const std::string& dir, EarlierRun earlier) {
  try {
    auto lock = prepare_run_dir(dir, earlier, "a test");
  } catch (const UserError& error) {
    CHECK_THAT(error.what(), Catch::Contains(dir));
    return to_int(error.code());
  }
  return 0;
}

}  // namespace

TEST_CASE("a run directory is created with its parents", "[launch][run_dir]") {
  test::TempDir temp;
  auto dir = temp / "runs/a";
  CHECK(code_for(dir, EarlierRun::kRefuse) == 0);
  CHECK(std::filesystem::is_directory(dir));
  CHECK(code_for(dir, EarlierRun::kRefuse) == 0);  // empty: no run yet
}

TEST_CASE("a directory that holds a run is refused, kept, or cleared of the run's own files", "[launch][run_dir]") {
  test::TempDir temp;
  auto dir = temp.path();
  temp.write("metrics.jsonl", "{}\n");
  temp.write("notes.txt", "mine");
  std::filesystem::create_directories(temp / "checkpoints/step_1");
  CHECK(code_for(dir, EarlierRun::kRefuse) == 73);
  CHECK(code_for(dir, EarlierRun::kKeep) == 0);
  CHECK(std::filesystem::exists(temp / "metrics.jsonl"));
  CHECK(code_for(dir, EarlierRun::kDiscard) == 0);
  CHECK_FALSE(holds_run(dir));
  CHECK(std::filesystem::exists(temp / "notes.txt"));
}

TEST_CASE("only the run's own files are discarded", "[launch][run_dir]") {
  namespace fs = std::filesystem;
  test::TempDir temp;
  auto put = [&](const std::string& file) {
    fs::create_directories(fs::path(temp / file).parent_path());
    temp.write(file, "x");
  };
  for (const char* ours :
       {"checkpoints/step_00000001/manifest.json", "checkpoints/step_00000002.tmp/x", "checkpoints/step_3.removing/x",
        "checkpoints/step_4.replaced/x", "checkpoints/latest", "checkpoints/best", "logs/localhost.0.log",
        "logs/node.a.12.log", "logs/20260101-000000-1-abcd/attempt_0/0/stdout.log"}) {
    put(ours);
  }
  const char* const mine[] = {"checkpoints/best.pt",      "checkpoints/step_notes/x", "checkpoints/step_",
                              "checkpoints/step_1.bak",   "logs/server.log",          "logs/20260101-000000-1-abcx/x",
                              "logs/2026-000000-1-abcd/x"};
  for (const char* file : mine) put(file);
  CHECK(code_for(temp.path(), EarlierRun::kDiscard) == 0);
  for (const char* file : mine) CHECK(fs::exists(temp / file));
  CHECK(std::distance(fs::directory_iterator(temp / "checkpoints"), {}) == 4);
  CHECK(std::distance(fs::directory_iterator(temp / "logs"), {}) == 3);
}

TEST_CASE("a symlink to a directory of checkpoints is kept", "[launch][run_dir]") {
  namespace fs = std::filesystem;
  test::TempDir temp;
  fs::create_directories(temp / "large/step_00000001");
  fs::create_directories(temp / "run");
  fs::create_directory_symlink("../large", temp / "run/checkpoints");
  CHECK(code_for(temp / "run", EarlierRun::kDiscard) == 0);
  CHECK(fs::is_symlink(temp / "run/checkpoints"));
  CHECK(fs::is_empty(temp / "large"));
}

TEST_CASE("logs of a run that never started do not count as a run", "[launch][run_dir]") {
  test::TempDir temp;
  std::filesystem::create_directories(temp / "logs");
  CHECK_FALSE(holds_run(temp.path()));
}

namespace {

// Whether the job may begin there, and appends; or the exit code.
struct ExecOutcome {
  int code = 0;
  bool appends = false;
  bool operator==(const ExecOutcome&) const = default;
};

ExecOutcome exec_in(const std::string& dir, const ExecJob& job, bool overwrite = false) {
  try {
    bool appends = check_exec_dir(dir, job, overwrite);
    auto lock = prepare_exec_dir(dir, job, overwrite);
    return {0, appends};
  } catch (const UserError& error) {
    CHECK_THAT(error.what(), Catch::Contains(dir));
    return {to_int(error.code()), false};
  }
}

}  // namespace

TEST_CASE("an exec does not touch another job's run directory", "[launch][run_dir]") {
  test::TempDir temp;
  const auto dir = temp / "run";
  const ExecOutcome begins{0, false}, appends{0, true}, refused{73, false};
  CHECK(exec_in(dir, {"job 1", "7"}) == begins);
  CHECK(code_for(dir, EarlierRun::kRefuse) == 73);
  CHECK(exec_in(dir, {"job 2", "7"}) == appends);
  CHECK(exec_in(dir, {"job 3", "8"}) == refused);
  CHECK(exec_in(dir, {"job 3", ""}) == refused);
  CHECK(exec_in(dir, {"job 3", ""}, true) == begins);
  CHECK(exec_in(dir, {"job 4", ""}) == refused);  // outside of Slurm no two jobs are one
  CHECK(exec_in(dir, {"job 5", "7"}) == refused);
  remove_exec_record(dir);
  CHECK(exec_in(dir, {"job 5", "7"}) == begins);
  temp.write("run/exec.json", "damaged");
  CHECK(exec_in(dir, {"job 5", "7"}) == refused);
}

TEST_CASE("an exec replaces logs and no files of its program", "[launch][run_dir]") {
  namespace fs = std::filesystem;
  test::TempDir temp;
  fs::create_directories(temp / "logs");
  fs::create_directories(temp / "checkpoints/step_00000001");
  temp.write("logs/node1.0.log", "");
  CHECK(exec_in(temp.path(), {"job 1", ""}).code == 73);  // the checkpoints
  fs::rename(temp / "checkpoints", temp / "mine");
  CHECK(exec_in(temp.path(), {"job 1", ""}).code == 0);  // an empty log is none
  remove_exec_record(temp.path());
  fs::rename(temp / "mine", temp / "checkpoints");
  temp.write("metrics.jsonl", "{}\n");
  temp.write("logs/node1.0.log", "x");
  CHECK(exec_in(temp.path(), {"job 1", ""}).code == 73);
  CHECK(exec_in(temp.path(), {"job 1", ""}, true).code == 0);
  CHECK_FALSE(fs::exists(temp / "logs/node1.0.log"));
  CHECK(fs::exists(temp / "metrics.jsonl"));
  CHECK(fs::exists(temp / "checkpoints/step_00000001"));
}

TEST_CASE("names a file in place of the directory", "[launch][run_dir]") {
  test::TempDir temp;
  auto file = temp.write("in-the-way", "");
  CHECK(code_for(file + "/run", EarlierRun::kRefuse) == 73);
  CHECK(code_for(file, EarlierRun::kRefuse) == 73);
}

TEST_CASE("reports why a directory cannot be created", "[launch][run_dir]") {
  test::TempDir temp;
  auto why = [&](const std::string& dir) -> std::string {
    try {
      check_run_dir(dir, EarlierRun::kRefuse);
    } catch (const UserError& error) {
      return error.what();
    }
    return "nothing";
  };
  std::filesystem::create_symlink("nowhere", temp / "dangling");
  std::filesystem::create_symlink("loop", temp / "loop");
  for (const char* below : {"", "/run/deeper"}) {
    CHECK_THAT(why((temp / "dangling") + below), Catch::Contains("dangling is a dangling symbolic link"));
    CHECK_THAT(why((temp / "loop") + below), Catch::Contains("Too many levels of symbolic links"));
    CHECK_THAT(why((temp / std::string(300, 'a')) + below), Catch::Contains("File name too long"));
  }
}

TEST_CASE("a run directory belongs to one job until it ends", "[launch][run_dir]") {
  test::TempDir temp;
  auto dir = temp / "run";
  {
    auto lock = prepare_run_dir(dir, EarlierRun::kRefuse, "job 1");
    temp.write("run/metrics.jsonl", "{}\n");
    for (auto earlier : {EarlierRun::kRefuse, EarlierRun::kKeep, EarlierRun::kDiscard}) {
      CHECK(code_for(dir, earlier) == 73);
    }
    CHECK(holds_run(dir));
    CHECK_THROWS_WITH(prepare_run_dir(dir, EarlierRun::kDiscard, "job 2"), Catch::Contains("job 1"));
  }
  CHECK(code_for(dir, EarlierRun::kKeep) == 0);
  CHECK_FALSE(std::filesystem::exists(dir + "/.lock"));
}
