#include "launch/plan/run_record.hpp"

#include <catch2/catch.hpp>
#include <filesystem>

#include "base/directory_lock.hpp"
#include "launch/plan/run_dir.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
namespace fs = std::filesystem;

namespace {

std::string run_in(const test::TempDir& root, const std::string& name, const RunRecord& record) {
  fs::create_directory(root / name);
  write_run_record(root / name, record);
  return root / name;
}

}  // namespace

TEST_CASE("a run's record has what continues it, and no secrets", "[launch][run_record]") {
  const test::TempDir root;
  RunRecord record{"j", 100, 1, 2, "bert", {"./dslaunch", {"m.pt", "--env", "KEY=secret"}, "/data"}};
  const std::string run = run_in(root, "run", record);
  CHECK(test::read_file(run + "/run.json").find("secret") == std::string::npos);
  record.start.words.back() = "KEY";
  const auto read = read_run_record(run);
  REQUIRE(read);
  CHECK(read->start == record.start);
  CHECK(read->label() == "bert");
  // As earlier versions wrote it.
  test::write_file(run + "/run.json", R"({"job_id": "j", "started": 100, "model": "01", "config": "02"})");
  CHECK(read_run_record(run)->label() == "j");
  CHECK(read_run_record(run)->start.words.empty());
}

TEST_CASE("the newest run of a model and a config that is not running is resumed", "[launch][run_record]") {
  const test::TempDir root;
  CHECK_FALSE(find_run_to_resume(root.path(), 1, 2));
  CHECK_FALSE(find_run_to_resume(root / "nowhere", 1, 2));
  const std::string older = run_in(root, "b", {"b", 100, 1, 2, "", {}}),
                    newer = run_in(root, "a", {"a", 200, 1, 2, "", {}});
  run_in(root, "c", {"c", 300, 7, 2, "", {}});
  run_in(root, "d", {"d", 300, 1, 7, "", {}});
  fs::create_directory(root / "e");
  test::write_file(root / "e/run.json", "{\"job_id\": 3}");
  CHECK(find_run_to_resume(root.path(), 1, 2) == newer);
  {
    const DirectoryLock held = DirectoryLock::lock_run_directory(newer, "job a");
    CHECK(find_run_to_resume(root.path(), 1, 2) == older);
  }
  CHECK(find_run_to_resume(root.path(), 1, 2) == newer);
  CHECK_FALSE(fs::exists(newer + "/.lock"));
  // Its records would be replaced.
  test::write_file(newer + "/metrics.jsonl", "{\"step\": 1}\n");
  CHECK(find_run_to_resume(root.path(), 1, 2) == older);
  fs::create_directories(newer + "/checkpoints/step_00000001");
  test::write_file(newer + "/checkpoints/step_00000001/manifest.json", "{}");
  CHECK(find_run_to_resume(root.path(), 1, 2) == newer);
}

TEST_CASE("a start without a step leaves its logs with the job, and no directory", "[launch][run_record]") {
  const test::TempDir root;
  const std::string run = run_in(root, "run", {"j", 100, 1, 2, "", {}});
  fs::create_directories(run + "/logs");
  fs::create_directories(run + "/checkpoints");
  test::write_file(run + "/logs/localhost.0.log", "alas\n");
  SECTION("of the start alone") {
    CHECK_FALSE(remove_failed_start(run, ""));
    CHECK(fs::exists(run + "/logs/localhost.0.log"));
    CHECK(remove_failed_start(run, root / "job"));
    CHECK_FALSE(fs::exists(run));
    CHECK(test::read_file(root / "job/logs/localhost.0.log") == "alas\n");
  }
  SECTION("with a step") {
    test::write_file(run + "/metrics.jsonl", "{\"step\": 1}\n");
    CHECK_FALSE(remove_failed_start(run, root / "job"));
    CHECK(fs::exists(run + "/logs/localhost.0.log"));
  }
  SECTION("with a file of somebody else") {
    test::write_file(run + "/notes.txt", "mine");
    CHECK_FALSE(remove_failed_start(run, root / "job"));
    CHECK(test::read_file(run + "/notes.txt") == "mine");
  }
}
