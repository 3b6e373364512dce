#include "launch/plan/worker_argv.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

using namespace dslaunch::launch;

namespace {

std::string value_of(const std::vector<std::string>& argv, const std::string& name) {
  auto at = std::find(argv.begin(), argv.end(), name);
  return at == argv.end() || at + 1 == argv.end() ? "(absent)" : *(at + 1);
}

}  // namespace

TEST_CASE("the worker gets every option as name and value, with absolute paths", "[launch][worker_argv]") {
  RunOptions run;
  run.model = "m.pt";
  run.config = "ds.json";
  run.sets = {"a.b=1", "c=d e"};
  run.flags.set("--steps", "50");
  run.flags.set("--seed", "7");
  run.flags.set("--resume", "auto");
  run.flags.set("--data", "train.npz");
  run.flags.set("--inputs", "x,z");
  run.flags.set("--loss", "mse");
  run.flags.set("--verify", "20");
  run.flags.set("--eval_only");
  auto argv = worker_argv(run, "/bin/dsworker", "cpu", "/runs/a");
  auto here = std::filesystem::current_path();
  CHECK(argv[0] == "/bin/dsworker");
  CHECK(argv[1] == "train");
  CHECK(argv[2] == (here / "m.pt").string());
  CHECK(value_of(argv, "--config") == (here / "ds.json").string());
  run.config = R"({"train_batch_size": 4})";
  CHECK(value_of(worker_argv(run, "/bin/dsworker", "cpu", "/runs/a"), "--config") == run.config);
  CHECK(value_of(argv, "--run_dir") == "/runs/a");
  CHECK(value_of(argv, "--device") == "cpu");
  CHECK(std::count(argv.begin(), argv.end(), "--set") == 2);
  CHECK(value_of(argv, "--data") == (here / "train.npz").string());
  CHECK(value_of(argv, "--inputs") == "x,z");
  CHECK(value_of(argv, "--loss") == "mse");
  CHECK(value_of(argv, "--steps") == "50");
  CHECK(value_of(argv, "--seed") == "7");
  CHECK(value_of(argv, "--resume") == "auto");
  CHECK(value_of(argv, "--verify") == "20");
  CHECK(std::count(argv.begin(), argv.end(), "--eval_only") == 1);
  CHECK(value_of(argv, "--epochs") == "(absent)");
}

TEST_CASE("the launcher and the worker read the same config, including the run's length", "[launch][worker_argv]") {
  RunOptions run;
  run.flags.set("--steps", "50");
  auto overrides = overrides_of(run);
  REQUIRE(overrides.size() == 2);
  CHECK(overrides[0].key == "train.steps");
  CHECK(overrides[0].value == "50");
  CHECK(overrides[1].key == "train.epochs");
  CHECK(overrides[1].value == "null");
}

TEST_CASE("options that were not given are not passed on", "[launch][worker_argv]") {
  RunOptions run;
  run.model = "/m.pt";
  CHECK(worker_argv(run, "w", "cuda", "/r") ==
        std::vector<std::string>{"w", "train", "/m.pt", "--run_dir", "/r", "--device", "cuda"});
}

TEST_CASE("data may be a list, as --set has it", "[launch][worker_argv]") {
  RunOptions run;
  run.model = "/m.pt";
  auto here = std::filesystem::current_path().string();
  const std::string expected = "[\"" + here + "/a.npz\",\"/b/*.npz\"]";
  for (const char* text : {"[a.npz, /b/*.npz]", "[\"a.npz\", \"/b/*.npz\"]"}) {
    run.flags.set("--data", text);
    CHECK(value_of(worker_argv(run, "w", "cpu", "/r"), "--data") == expected);
  }
  run.flags.set("--data", "[ab].npz");  // a glob
  CHECK(value_of(worker_argv(run, "w", "cpu", "/r"), "--data") == here + "/[ab].npz");
}

TEST_CASE("synthetic data is not a path", "[launch][worker_argv]") {
  RunOptions run;
  run.model = "/m.pt";
  run.flags.set("--data", "synthetic");
  CHECK(value_of(worker_argv(run, "w", "cpu", "/r"), "--data") == "synthetic");
}
