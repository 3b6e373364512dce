#include "base/run_checkpoints.hpp"

#include <catch2/catch.hpp>
#include <filesystem>

#include "support/temp_dir.hpp"

using namespace dslaunch;
namespace fs = std::filesystem;

TEST_CASE("a run directory leads to its checkpoints", "[base][run_checkpoints]") {
  const test::TempDir run;
  CHECK(checkpoints_of_run(run.path()).empty());
  CHECK(checkpoints_of_run(run / "nowhere").empty());
  fs::create_directory(run / "checkpoints");
  CHECK(checkpoints_of_run(run.path()) == run / "checkpoints");
  run.write("config.resolved.json", R"({"checkpoint": {"dir": null}})");
  CHECK(checkpoints_of_run(run.path()) == run / "checkpoints");
  run.write("config.resolved.json", R"({"checkpoint": {"dir": "/scratch/checkpoints of a"}})");
  CHECK(checkpoints_of_run(run.path()) == "/scratch/checkpoints of a");
  for (const char* damaged :
       {"", "[]", "{\"checkpoint\": 3}", "{\"checkpoint\": {\"dir\": 3}}", "{\"checkpoint\": {"}) {
    run.write("config.resolved.json", damaged);
    CHECK(checkpoints_of_run(run.path()) == run / "checkpoints");
  }
}

TEST_CASE("a directory that holds checkpoints itself stands for these", "[base][run_checkpoints]") {
  const test::TempDir run;
  fs::create_directory(run / "checkpoints");
  SECTION("a step") {
    fs::create_directory(run / "step_00000010");
  }
  SECTION("latest") {
    run.write("latest", "step_00000010");
  }
  SECTION("a checkpoint") {
    run.write("manifest.json", "{}");
  }
  CHECK(checkpoints_of_run(run.path()).empty());
}

TEST_CASE("the best checkpoint is the one that the first line of its file names", "[base][run_checkpoints]") {
  const test::TempDir dir;
  CHECK(best_checkpoint(dir.path()).empty());
  dir.write("best", "step_00000010 eval_loss 2.5\nstep_00000020 eval_loss 2.75\n");
  CHECK(best_checkpoint(dir.path()).empty());  // it is gone
  fs::create_directory(dir / "step_00000010");
  dir.write("step_00000010/manifest.json", "{}");
  CHECK(best_checkpoint(dir.path()) == dir / "step_00000010");
  for (const char* damaged : {"", "\n", "manifest.json", "step_/../step_00000010"}) {
    dir.write("best", damaged);
    CHECK(best_checkpoint(dir.path()).empty());
  }
}

TEST_CASE("a run continues from its newest complete checkpoint, or from the one that latest names",
          "[base][run_checkpoints]") {
  const test::TempDir run;
  const auto save = [&](const std::string& name, bool is_complete) {
    fs::create_directories(run / ("checkpoints/" + name));
    if (is_complete) run.write("checkpoints/" + name + "/manifest.json", "{}");
  };
  CHECK_FALSE(newest_run_checkpoint(run / "nowhere"));
  CHECK_FALSE(newest_run_checkpoint(run.path()));
  // A save that a second Ctrl-C has ended.
  save("step_00000004.tmp", true);
  save("step_00000004", false);
  save("step_notes", true);
  CHECK_FALSE(newest_run_checkpoint(run.path()));
  save("step_00000002.replaced", true);
  CHECK(newest_run_checkpoint(run.path()) == 2);
  save("step_00000003", true);
  CHECK(newest_run_checkpoint(run.path()) == 3);
  run.write("checkpoints/latest", "step_00000002.replaced\n");
  CHECK(newest_run_checkpoint(run.path()) == 2);
  run.write("checkpoints/latest", "step_00000004\n");
  CHECK(newest_run_checkpoint(run.path()) == 3);
}

TEST_CASE("the newest checkpoint is the one that latest names, or the last that has a manifest",
          "[base][run_checkpoints]") {
  const test::TempDir run;
  for (const char* name : {"step_00000010", "step_00000020", "step_00000030", "step_00000040.tmp"}) {
    fs::create_directories(run / ("checkpoints/" + std::string(name)));
    if (std::string(name) != "step_00000030") run.write(std::string("checkpoints/") + name + "/manifest.json", "{}");
  }
  const std::string step = run / "checkpoints/step_000000";
  CHECK(newest_checkpoint(run.path()) == step + "20");
  run.write("checkpoints/latest", "step_00000010\n");
  CHECK(newest_checkpoint(run / "checkpoints") == step + "10");
  CHECK(newest_checkpoint(step + "20") == step + "20");
  run.write("checkpoints/latest", "step_00000030\n");  // it is gone
  CHECK(newest_checkpoint(run / "checkpoints/latest") == step + "20");
  CHECK(newest_checkpoint(run / "nowhere").empty());
}
