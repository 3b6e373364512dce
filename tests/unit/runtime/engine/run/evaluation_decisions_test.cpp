// Whole runs on ranks that are threads: what evaluations measure, when they end a run, and which checkpoints they keep.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "support/captured_output.hpp"
#include "support/expect_error.hpp"
#include "support/job_run.hpp"
#include "support/script_models.hpp"

using namespace dslaunch;
using Catch::Matchers::Contains;
using test::expect_error;
using test::JobFiles;
using test::JobRun;
using test::json;
using test::TrainOutcome;

namespace fs = std::filesystem;

namespace {

constexpr const char* kShareOf2 =
    "def forward(self, outputs, labels):\n"
    "    return torch.stack([(outputs.argmax(-1) == 2).sum(), torch.tensor(labels.numel())])\n";

// forward(x, y) returns the loss and [rows, 3, 4] logits of three labels each; blocks for stages.
torch::jit::Module classifier(const std::string& returns) {
  const auto block = [](uint64_t seed) {
    return test::compile({"Block",
                          "def forward(self, x):\n    return x + torch.tanh(torch.matmul(x, self.weight))\n",
                          {{"weight", test::random_weight({5, 5}, seed)}}});
  };
  return test::compile({"Net",
                        "def forward(self, x, y):\n"
                        "    x = self.b.forward(self.a.forward(x))\n"
                        "    logits = torch.matmul(x, self.head).view(-1, 3, 4)\n"
                        "    loss = torch.cross_entropy_loss(logits.view(-1, 4), y.view(-1), None, 1, -100, 0.0)\n"
                        "    return " +
                            returns + "\n",
                        {{"head", test::random_weight({5, 12}, 3, 1.5)}},
                        {},
                        {{"a", block(1)}, {"b", block(2)}}});
}

struct Classification : JobFiles {
  at::Tensor labels = at::arange(180).remainder(4).view({60, 3}), eval_x = test::random_values({23, 5}, 200),
             eval_y = at::arange(69).mul(7).remainder(4).view({23, 3}).clone();

  explicit Classification(const std::string& returns = "loss, logits") : JobFiles(classifier(returns)) {
    eval_y.narrow(0, 20, 2).narrow(1, 1, 2).fill_(-100);
    test::write_samples(folder / "data.safetensors", {{"x", x}, {"y", labels}});
    test::write_samples(folder / "eval.safetensors", {{"x", eval_x}, {"y", eval_y}});
    test::compile({"Metric", kShareOf2}).save(folder / "metric.pt");
  }
  JobRun run(int ranks, const json& changes) const {
    const json base{{"loss", nullptr},
                    {"data", {{"eval", folder / "eval.safetensors"}, {"labels", {"y"}}}},
                    {"train", {{"steps", 4}, {"eval_interval", 2}}}};
    auto out = config(base, changes);
    out.erase("loss");
    if (changes.contains("loss")) out["loss"] = changes["loss"];
    return {model, folder / "run", out, ranks};
  }
  json metrics() const {
    return {"perplexity", {{"name", "share_of_2"}, {"module", folder / "metric.pt"}}, "accuracy"};
  }
};

// A weight that falls by 1 in each step, from 10, and what it is multiplied with.
struct Falling : JobFiles {
  Falling()
      : JobFiles(test::compile({"Net",
                                "def forward(self, x, y):\n    out = self.w * x\n    return out.mean(), out\n",
                                {{"w", at::full({1}, 10.0).set_requires_grad(true)}}})) {
    for (const char* name : {"data.safetensors", "eval.safetensors"}) {
      test::write_samples(folder / name, {{"x", at::ones({24, 1})}, {"y", at::zeros({24, 1})}});
    }
    // How far it is from 5, where it arrives in step 5.
    test::compile({"Metric",
                   "def forward(self, outputs, labels):\n"
                   "    return torch.stack([(outputs - 5).abs().sum(), torch.tensor(float(labels.numel()))])\n"})
        .save(folder / "metric.pt");
  }
  JobRun run(int ranks, const json& changes) const {
    const json base{
        {"optimizer",
         {{"type", "SGD"}, {"params", {{"lr", 1.0}, {"betas", nullptr}, {"eps", nullptr}, {"weight_decay", 0}}}}},
        {"data", {{"eval", folder / "eval.safetensors"}}},
        {"train",
         {{"steps", 12},
          {"eval_interval", 1},
          {"metrics", {{{"name", "distance"}, {"module", folder / "metric.pt"}}}}}},
        {"checkpoint", {{"keep_last", 1}, {"async", true}}}};
    auto out = config(base, changes);
    out.erase("loss");
    return {model, folder / "run", out, ranks};
  }
};

const json kStopAfter2{{"train", {{"early_stopping", {{"metric", "distance"}, {"mode", "min"}, {"patience", 2}}}}}};
const json kKeepBest{{"checkpoint", {{"keep_best", {{"metric", "distance"}, {"mode", "min"}}}}}};

JobRun resumed(JobRun run, int ranks) {
  run.ranks = ranks;
  run.prepare = [](test::TrainRequest& request) { request.resume = "auto"; };
  return run;
}

std::vector<int64_t> steps_of(const JobRun& run) {
  return runtime::steps_in(run.run_dir + "/checkpoints");
}

std::string best_of(const JobRun& run) {
  return test::read_file(run.run_dir + "/checkpoints/best");
}

}  // namespace

TEST_CASE("evaluations measure as one process does over all samples", "[runtime][engine][metrics]") {
  const auto [ranks, changes] = GENERATE(table<int, json>({
      {1, json::object()},
      {3, {{"zero_optimization", {{"stage", 3}, {"stage3_param_persistence_threshold", 0}}}}},
      {2, {{"loss_average", "tokens"}, {"train_micro_batch_size_per_gpu", 2}}},
      {4, {{"units", {"Block"}}, {"pipeline", {{"stages", 2}, {"partition", "parameters"}}}}},
  }));
  const Classification files;
  const auto run = files.run(ranks, test::with(changes, {{"train", {{"metrics", files.metrics()}}},
                                                         {"checkpoint", {{"interval", 2}, {"keep_last", 5}}}}));
  INFO(run.config.dump());
  test::run_job(run);
  const auto metrics = test::metrics_of(run.run_dir);
  REQUIRE(metrics.size() == 4);
  CHECK_FALSE(metrics[0].contains("eval_accuracy"));
  // Nor do they change training.
  auto without = run.with_changes({{"train", {{"metrics", nullptr}}}});
  without.run_dir = files.folder / "without";
  test::run_job(without);
  const auto plain = test::metrics_of(without.run_dir);
  for (size_t i = 0; i < 4; ++i) CHECK(metrics[i].at("loss") == plain.at(i).at("loss"));
  for (const int64_t step : {2, 4}) {
    const auto& line = metrics[static_cast<size_t>(step - 1)];
    const auto states = test::states_of(fmt::format("{}/checkpoints/step_{:08}", run.run_dir, step));
    at::Tensor x = files.eval_x;
    for (const char* block : {"a", "b"}) {
      x = x + at::tanh(at::matmul(x, states.at({std::string(block) + ".weight", "master"}).view({5, 5})));
    }
    const at::Tensor logits = at::matmul(x, states.at({"head", "master"}).view({5, 12})).view({-1, 4}),
                     labels = files.eval_y.view({-1}), found = logits.argmax(1), counts = labels.ne(-100);
    const double loss = at::cross_entropy_loss(logits, labels).item<double>();
    CHECK(line.at("eval_perplexity").get<double>() == Approx(std::exp(loss)).epsilon(1e-5));
    CHECK(line.at("eval_accuracy").get<double>() ==
          Approx(found.eq(labels).sum().item<double>() / counts.sum().item<double>()));
    CHECK(line.at("eval_share_of_2").get<double>() == Approx(found.eq(2).sum().item<double>() / 69));
  }
}

TEST_CASE("what evaluations measure is in lines, summary and curves", "[runtime][engine][metrics]") {
  const Classification files;
  auto run =
      files.run(2, {{"train", {{"metrics", {"accuracy"}}}},
                    {"csv_monitor", {{"enabled", true}, {"output_path", files.folder / "csv"}, {"job_name", "j"}}}});
  run.prepare = [](test::TrainRequest& request) { request.quiet = false; };
  const test::CapturedOutput out(1);
  test::run_job(run);
  const std::string text = out.text();
  CHECK_THAT(text,
             Catch::Matchers::Matches("(.|\n)*step 2  eval_loss \\S+  eval_accuracy \\S+  over 23 samples\n(.|\n)*"));
  CHECK_THAT(text, Catch::Matchers::Matches("(.|\n)*eval_loss   \\S+ after step 4, eval_accuracy 0\\.\\d{4}\n(.|\n)*"));
  const auto csv = test::read_file(files.folder / "csv/j/Train_Samples_eval_accuracy.csv");
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 3);
  // --eval_only measures, too, and decides nothing.
  run.prepare = [](test::TrainRequest& request) {
    request.eval_only = true;
    request.resume = "auto";
  };
  test::run_job(run);
  const auto lines = test::metrics_of(run.run_dir);
  REQUIRE(lines.size() == 5);
  CHECK(lines[4].at("eval_accuracy") == lines[3].at("eval_accuracy"));
}

TEST_CASE("a metric that does not suit the model ends the run before its first step", "[runtime][engine][metrics]") {
  const Classification files("loss");
  const auto run = files.run(2, {{"train", {{"metrics", {"accuracy"}}}}});
  expect_error(ExitCode::kBadInput, {"forward returns only the loss"}, [&] { test::run_job(run); });
  CHECK(test::metrics_of(run.run_dir).empty());
  const auto only_loss = files.run(2, {{"train", {{"metrics", {"perplexity"}}}}});
  CHECK(test::run_job(only_loss) == TrainOutcome::kFinished);
  CHECK(test::metrics_of(run.run_dir)[3].contains("eval_perplexity"));
}

TEST_CASE("a run ends early and stays so", "[runtime][engine][early_stopping]") {
  const Falling files;
  const auto run = files.run(2, test::with(kStopAfter2, kKeepBest));
  CHECK(test::run_job(run) == TrainOutcome::kFinished);
  const auto metrics = test::metrics_of(run.run_dir);
  REQUIRE(metrics.size() == 7);  // 4, 3, 2, 1, 0, 1, 2
  CHECK(metrics[4].at("eval_distance") == 0);
  CHECK(metrics[6].at("eval_distance") == 2);
  CHECK(steps_of(run) == std::vector<int64_t>{5, 7});
  CHECK(best_of(run) == "step_00000005 eval_distance 0\n");
  CHECK(test::read_file(run.run_dir + "/checkpoints/latest") == "step_00000007\n");
  CHECK(test::run_job(resumed(run, 1)) == TrainOutcome::kFinished);  // nothing is left
  CHECK(test::metrics_of(run.run_dir).size() == 7);
  // Without it the run goes on, and its best checkpoint stays.
  auto on = resumed(run, 3).with_changes({{"train", {{"early_stopping", nullptr}, {"steps", 9}}}});
  CHECK(test::run_job(on) == TrainOutcome::kFinished);
  CHECK(test::metrics_of(run.run_dir).size() == 9);
  CHECK(steps_of(run) == std::vector<int64_t>{5, 9});
  CHECK(best_of(run) == "step_00000005 eval_distance 0\n");
}

TEST_CASE("a run that was stopped counts on from its metrics on any number of ranks",
          "[runtime][engine][early_stopping]") {
  const Falling files;
  const int64_t stop_after = GENERATE(5, 6);
  auto run = files.run(2, test::with(kStopAfter2, kKeepBest));
  auto stopping = run;
  stopping.prepare = [&](test::TrainRequest& request) {
    request.stop_requested = [asked = std::make_shared<int64_t>(0), stop_after] { return ++*asked >= stop_after; };
  };
  CHECK(test::run_job(stopping) == TrainOutcome::kStopped);
  CHECK(test::run_job(resumed(run, 3)) == TrainOutcome::kFinished);
  // One line a step, and one of the evaluation that the stop has prevented.
  const auto metrics = test::metrics_of(run.run_dir);
  REQUIRE(metrics.size() == 8);
  CHECK(metrics[7].at("step") == 7);
  CHECK(steps_of(run) == std::vector<int64_t>{5, 7});
}

TEST_CASE("the best checkpoints are kept beside the last ones", "[runtime][engine][keep_best]") {
  const Falling files;
  const auto run = files.run(2, test::with({{"train", {{"steps", 8}}}}, kKeepBest));
  SECTION("saved as soon as they are the best") {
    test::run_job(run);
    CHECK(steps_of(run) == std::vector<int64_t>{5, 8});
  }
  SECTION("among those of an interval") {
    const auto more = run.with_changes({{"checkpoint", {{"interval", 3}, {"keep_last", 2}, {"async", false}}}});
    test::run_job(more);
    CHECK(steps_of(run) == std::vector<int64_t>{5, 6, 8});
  }
  SECTION("several of them, of equal ones the earlier") {
    test::run_job(run.with_changes({{"checkpoint", {{"keep_best", {{"count", 2}}}}}}));
    CHECK(steps_of(run) == std::vector<int64_t>{4, 5, 8});
    CHECK(best_of(run) == "step_00000005 eval_distance 0\nstep_00000004 eval_distance 1\n");
  }
  SECTION("also the one of the evaluation after the end") {
    test::run_job(run.with_changes({{"train", {{"steps", 4}, {"eval_interval", 3}}}}));
    CHECK(steps_of(run) == std::vector<int64_t>{4});
    CHECK(best_of(run) == "step_00000004 eval_distance 1\n");
  }
  SECTION("saved at the end only as the best") {
    const json changes{{"train", {{"steps", 5}, {"eval_interval", 3}}}, {"checkpoint", {{"at_end", false}}}};
    test::run_job(run.with_changes(changes));
    CHECK(steps_of(run) == std::vector<int64_t>{5});
  }
  SECTION("named again where a kill came before") {
    test::run_job(run.with_changes({{"train", {{"steps", 5}}}}));
    fs::remove(run.run_dir + "/checkpoints/best");
    test::run_job(resumed(run, 2));
    CHECK(steps_of(run) == std::vector<int64_t>{5, 8});
    CHECK(best_of(run) == "step_00000005 eval_distance 0\n");
  }
  SECTION("and said at the end") {
    auto loud = run;
    loud.prepare = [](test::TrainRequest& request) { request.quiet = false; };
    const test::CapturedOutput out(1);
    test::run_job(loud);
    CHECK_THAT(out.text(), Contains("best        eval_distance 0.0000 after step 5: " + run.run_dir +
                                    "/checkpoints/step_00000005\n"));
  }
}
