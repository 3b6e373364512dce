#include "launch/run_folder.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "unit/spawn/test_folder.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

int code_for(const std::string& folder, EarlierRun earlier) {
  try {
    prepare_run_folder(folder, earlier);
  } catch (const UserError& error) {
    CHECK_THAT(error.what(), Catch::Contains(folder));
    return to_int(error.code());
  }
  return 0;
}

}  // namespace

TEST_CASE("a run folder is made with its parents", "[launch][run_folder]") {
  TempFolder temp;
  auto folder = (temp.path / "runs" / "a").string();
  CHECK(code_for(folder, EarlierRun::kRefuse) == 0);
  CHECK(std::filesystem::is_directory(folder));
  CHECK(code_for(folder, EarlierRun::kRefuse) == 0);  // empty: no run yet
}

TEST_CASE("a folder that holds a run is refused, kept or cleared of the run's own files", "[launch][run_folder]") {
  TempFolder temp;
  auto folder = temp.path.string();
  temp.file("metrics.jsonl", "{}\n");
  temp.file("notes.txt", "mine");
  std::filesystem::create_directories(temp.path / "checkpoints" / "step_1");
  CHECK(code_for(folder, EarlierRun::kRefuse) == 73);
  CHECK(code_for(folder, EarlierRun::kKeep) == 0);
  CHECK(std::filesystem::exists(temp.path / "metrics.jsonl"));
  CHECK(code_for(folder, EarlierRun::kDiscard) == 0);
  CHECK_FALSE(holds_run(folder));
  CHECK(std::filesystem::exists(temp.path / "notes.txt"));
}

TEST_CASE("logs of a run that never began are no run", "[launch][run_folder]") {
  TempFolder temp;
  std::filesystem::create_directories(temp.path / "logs");
  CHECK_FALSE(holds_run(temp.path.string()));
}

TEST_CASE("a file in the way is named", "[launch][run_folder]") {
  TempFolder temp;
  auto file = temp.file("in-the-way", "");
  CHECK(code_for(file + "/run", EarlierRun::kRefuse) == 73);
  CHECK(code_for(file, EarlierRun::kRefuse) == 73);
}
