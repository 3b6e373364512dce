// What ends a run of pipeline stages (threads) is traced to stage, micro batch and module.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "support/expect_error.hpp"
#include "support/job_run.hpp"
#include "support/script_models.hpp"

using namespace dslaunch;
using test::expect_error;
using test::JobFiles;
using test::JobRun;

namespace {

torch::jit::Module block(const std::string& type, const std::string& result) {
  return test::compile(
      {type,
       "def forward(self, x):\n"
       "    y = x + 0.1 * torch.tanh(torch.matmul(x, self.weight)) + torch.sqrt(self.offset) * 0.01\n"
       "    return " +
           result + "\n",
       {{"weight", test::random_weight({5, 5}, 1)}, {"offset", at::ones({5}).set_requires_grad(true)}}});
}

// Blocks "a" and "b" are on the first of two stages, "c", "d" and the head on the second.
torch::jit::Module net(const std::string& of_b, const std::string& of_c) {
  return test::compile({"Net",
                        "def forward(self, x):\n"
                        "    x = self.d.forward(self.c.forward(self.b.forward(self.a.forward(x))))\n"
                        "    return torch.matmul(x, self.head)\n",
                        {{"head", test::random_weight({5, 3}, 3)}},
                        {},
                        {{"a", block("Block", "y")},
                         {"b", block("BlockB", of_b)},
                         {"c", block("BlockC", of_c)},
                         {"d", block("Block", "y")}}});
}

// Two pipelines of two stages, with two micro batches of three samples.
JobRun run_of(JobFiles& files, const test::json& changes = test::json::object()) {
  files.x = files.x.abs() + 1;
  test::write_samples(files.folder / "data.safetensors", {{"x", files.x}, {"y", files.y}});
  const test::json stages{{"gradient_accumulation_steps", 2},
                          {"units", {"Block", "BlockB", "BlockC"}},
                          {"pipeline", {{"stages", 2}, {"partition", "parameters"}}}};
  return {files.model, files.folder / "run", files.config(stages, changes), 4};
}

void spoil(JobFiles& files, int64_t sample, double value) {
  files.x[sample].fill_(value);
  test::write_samples(files.folder / "data.safetensors", {{"x", files.x}, {"y", files.y}});
}

void expect_end(const JobRun& run, const std::vector<std::string>& words) {
  expect_error(ExitCode::kCannotContinue, words, [&] { test::run_job(run); });
}

}  // namespace

TEST_CASE("a loss that is not a number is traced to the stage whose unit made it one",
          "[runtime][engine][diagnosis][pipeline]") {
  const auto schedule = GENERATE("1f1b", "zb-h1");
  const int zero = GENERATE(0, 1);
  const test::json changes{{"pipeline", {{"schedule", schedule}}}, {"zero_optimization", {{"stage", zero}}}};
  SECTION("the first") {
    JobFiles files(net("torch.sqrt(y)", "y"));
    const auto run = run_of(files, changes);
    spoil(files, 21, -5);  // step 2, in the second micro batch of the second pipeline
    expect_end(run, {"the loss is not finite at step 2",
                     "Run again with checks: rank 1 (stage 0), micro batch 1 (samples 21, 22, 23): ",
                     "the output of unit 'b'", "nan"});
  }
  SECTION("the second") {
    JobFiles files(net("y", "torch.sqrt(y)"));
    const auto run = run_of(files, changes);
    spoil(files, 21, -5);
    expect_end(run, {"the loss is not finite at step 2",
                     "rank 3 (stage 1), micro batch 1 (samples 21, 22, 23): ", "the output of unit 'c'", "nan"});
  }
}

TEST_CASE("an infinity of one stage is told with the NaN that another makes of it",
          "[runtime][engine][diagnosis][pipeline]") {
  JobFiles files(net("torch.exp(y)", "y - y"));
  const auto run = run_of(files);
  spoil(files, 12, 1000);
  expect_end(run, {"the loss is not finite at step 2", "rank 2 (stage 1), micro batch 0 (samples 12, 13, 14): ",
                   "the output of unit 'c'", "nan", "before that, on rank 0 (stage 0), the output of unit 'b'", "inf"});
}

TEST_CASE("a value of the data is named on a pipeline, too", "[runtime][engine][diagnosis][pipeline]") {
  JobFiles files(net("y", "y"));
  const auto run = run_of(files);
  spoil(files, 22, std::nan(""));
  expect_end(run, {"the loss is not finite at step 2", "micro batch 1 (samples 21, 22, 23)",
                   "array 'x' of the data, sample 22", "nan"});
}

TEST_CASE("a micro batch without a label that counts is named on a pipeline, too",
          "[runtime][engine][diagnosis][pipeline]") {
  JobFiles files(net("y", "y"));
  const auto run = run_of(files, {{"loss", "cross_entropy"}});
  at::Tensor labels = at::arange(60).remainder(3);
  labels.narrow(0, 9, 3).fill_(-100);
  test::write_samples(files.folder / "data.safetensors", {{"x", files.x}, {"y", labels}});
  expect_end(run,
             {"the loss is not finite at step 1", "micro batch 1 (samples 9, 10, 11): no label counts: array 'y'"});
}

TEST_CASE("a gradient that is not finite is traced to the stage that has its parameter",
          "[runtime][engine][diagnosis][pipeline]") {
  const auto [name, rank] = GENERATE(table<const char*, const char*>({{"b", "0 (stage 0)"}, {"c", "2 (stage 1)"}}));
  auto module = net("y", "y");
  {
    const at::NoGradGuard no_grad;
    module.attr(name).toModule().attr("offset").toTensor().zero_();  // the square root of 0 has an infinite gradient
  }
  JobFiles files(module);
  expect_end(run_of(files), {"the gradient is not finite at step 1", fmt::format("rank {}, micro batch 0", rank),
                             fmt::format("the gradient of parameter '{0}.offset' (unit '{0}')", name), "inf"});
}
