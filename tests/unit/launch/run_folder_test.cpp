#include "launch/run_folder.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

int code_for(const std::string& folder, EarlierRun earlier) {
  try {
    const RunFolder held(folder, earlier, "a test");
  } catch (const UserError& error) {
    CHECK_THAT(error.what(), Catch::Contains(folder));
    return to_int(error.code());
  }
  return 0;
}

}  // namespace

TEST_CASE("a run folder is made with its parents", "[launch][run_folder]") {
  test::TempDir temp;
  auto folder = temp / "runs/a";
  CHECK(code_for(folder, EarlierRun::kRefuse) == 0);
  CHECK(std::filesystem::is_directory(folder));
  CHECK(code_for(folder, EarlierRun::kRefuse) == 0);  // empty: no run yet
}

TEST_CASE("a folder that holds a run is refused, kept or cleared of the run's own files", "[launch][run_folder]") {
  test::TempDir temp;
  auto folder = temp.path();
  temp.write("metrics.jsonl", "{}\n");
  temp.write("notes.txt", "mine");
  std::filesystem::create_directories(temp / "checkpoints/step_1");
  CHECK(code_for(folder, EarlierRun::kRefuse) == 73);
  CHECK(code_for(folder, EarlierRun::kKeep) == 0);
  CHECK(std::filesystem::exists(temp / "metrics.jsonl"));
  {
    const RunFolder held(folder, EarlierRun::kDiscard, "a test");
    CHECK_FALSE(std::filesystem::exists(temp / "metrics.jsonl"));
    CHECK_FALSE(std::filesystem::exists(temp / "checkpoints/step_1"));
    temp.write("metrics.jsonl", "{\"step\": 1}\n");  // the new run's first
  }
  CHECK_FALSE(std::filesystem::exists(temp / "checkpoints/step_1"));
  CHECK_FALSE(std::filesystem::exists(temp / ".overwritten"));
  CHECK_FALSE(std::filesystem::exists(temp / "checkpoints/.overwritten"));
  CHECK(std::filesystem::exists(temp / "notes.txt"));
}

TEST_CASE("a run that is overwritten by none comes back", "[launch][run_folder]") {
  namespace fs = std::filesystem;
  test::TempDir temp;
  const auto folder = temp.path();
  temp.write("metrics.jsonl", "old");
  temp.write("config.resolved.json", "old");
  fs::create_directories(temp / "checkpoints/step_1");
  temp.write("checkpoints/step_1/manifest.json", "old");
  const auto is_as_before = [&] {
    return test::read_file(temp / "metrics.jsonl") == "old" &&
           test::read_file(temp / "config.resolved.json") == "old" &&
           test::read_file(temp / "checkpoints/step_1/manifest.json") == "old" && !fs::exists(temp / ".overwritten") &&
           !fs::exists(temp / ".overwritten.tmp") && !fs::exists(temp / "checkpoints/.overwritten");
  };
  SECTION("at the end of the job") {
    {
      const RunFolder held(folder, EarlierRun::kDiscard, "a test");
      temp.write("config.resolved.json", "of a run that failed in its first step");
    }
    CHECK(is_as_before());
  }
  SECTION("before the next job, when a launcher was killed at any point of setting it aside or of putting it back") {
    const std::pair<const char*, const char*> moves[] = {
        {"checkpoints/step_1", "checkpoints/.overwritten/step_1"},
        {"config.resolved.json", ".overwritten.tmp/config.resolved.json"},
        {"metrics.jsonl", ".overwritten.tmp/metrics.jsonl"},
        {".overwritten.tmp", ".overwritten"}};
    const size_t num_moves = GENERATE(1, 2, 3, 4);
    for (size_t i = 0; i < num_moves; ++i) {
      fs::create_directories(fs::path(temp / moves[i].second).parent_path());
      fs::rename(temp / moves[i].first, temp / moves[i].second);
    }
    CHECK(holds_run(folder));
    CHECK(code_for(folder, EarlierRun::kRefuse) == 73);
    CHECK(is_as_before());
  }
}

TEST_CASE("of what is beside checkpoints and logs only the run's own is discarded", "[launch][run_folder]") {
  namespace fs = std::filesystem;
  test::TempDir temp;
  auto put = [&](const std::string& file) {
    fs::create_directories(fs::path(temp / file).parent_path());
    temp.write(file, "x");
  };
  for (const char* ours :
       {"checkpoints/step_00000001/manifest.json", "checkpoints/step_00000002.tmp/x", "checkpoints/step_3.removing/x",
        "checkpoints/step_4.replaced/x", "checkpoints/latest", "logs/localhost.0.log", "logs/node.a.12.log",
        "logs/20260101-000000-1-abcd/attempt_0/0/stdout.log"}) {
    put(ours);
  }
  const char* const mine[] = {"checkpoints/best.pt",      "checkpoints/step_notes/x", "checkpoints/step_",
                              "checkpoints/step_1.bak",   "logs/server.log",          "logs/20260101-000000-1-abcx/x",
                              "logs/2026-000000-1-abcd/x"};
  for (const char* file : mine) put(file);
  {
    const RunFolder held(temp.path(), EarlierRun::kDiscard, "a test");
    temp.write("metrics.jsonl", "{}\n");
  }
  for (const char* file : mine) CHECK(fs::exists(temp / file));
  CHECK(std::distance(fs::directory_iterator(temp / "checkpoints"), {}) == 4);
  CHECK(std::distance(fs::directory_iterator(temp / "logs"), {}) == 3);
}

TEST_CASE("a link to a folder of checkpoints elsewhere stays one", "[launch][run_folder]") {
  namespace fs = std::filesystem;
  test::TempDir temp;
  fs::create_directories(temp / "large/step_00000001");
  fs::create_directories(temp / "run");
  fs::create_directory_symlink("../large", temp / "run/checkpoints");
  {
    const RunFolder held(temp / "run", EarlierRun::kDiscard, "a test");
    temp.write("run/metrics.jsonl", "{}\n");
  }
  CHECK(fs::is_symlink(temp / "run/checkpoints"));
  CHECK(fs::is_empty(temp / "large"));
}

TEST_CASE("logs of a run that never began are no run", "[launch][run_folder]") {
  test::TempDir temp;
  std::filesystem::create_directories(temp / "logs");
  CHECK_FALSE(holds_run(temp.path()));
}

TEST_CASE("a file in the way is named", "[launch][run_folder]") {
  test::TempDir temp;
  auto file = temp.write("in-the-way", "");
  CHECK(code_for(file + "/run", EarlierRun::kRefuse) == 73);
  CHECK(code_for(file, EarlierRun::kRefuse) == 73);
}

TEST_CASE("what keeps a folder from being made is told", "[launch][run_folder]") {
  test::TempDir temp;
  auto why = [&](const std::string& folder) -> std::string {
    try {
      check_run_folder(folder, EarlierRun::kRefuse);
    } catch (const UserError& error) {
      return error.what();
    }
    return "nothing";
  };
  std::filesystem::create_symlink("nowhere", temp / "dangling");
  std::filesystem::create_symlink("loop", temp / "loop");
  for (const char* below : {"", "/run/deeper"}) {
    CHECK_THAT(why((temp / "dangling") + below), Catch::Contains("dangling is a link to what does not exist"));
    CHECK_THAT(why((temp / "loop") + below), Catch::Contains("Too many levels of symbolic links"));
    CHECK_THAT(why((temp / std::string(300, 'a')) + below), Catch::Contains("File name too long"));
  }
}

TEST_CASE("a folder is one job's until it ends, whatever another one asks for", "[launch][run_folder]") {
  test::TempDir temp;
  auto folder = temp / "run";
  {
    const RunFolder held(folder, EarlierRun::kRefuse, "job 1");
    temp.write("run/metrics.jsonl", "{}\n");
    for (auto earlier : {EarlierRun::kRefuse, EarlierRun::kKeep, EarlierRun::kDiscard}) {
      CHECK(code_for(folder, earlier) == 73);
    }
    CHECK(holds_run(folder));
    CHECK_THROWS_WITH(RunFolder(folder, EarlierRun::kDiscard, "job 2"), Catch::Contains("job 1"));
  }
  CHECK(code_for(folder, EarlierRun::kKeep) == 0);
  CHECK_FALSE(std::filesystem::exists(folder + "/.lock"));
}
