// Checkpoints that DeepSpeed itself saved (tests/data/deepspeed_checkpoints) become ours, with DeepSpeed's own numbers.
#include "runtime/engine/run/import_checkpoint.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "runtime/state/safetensors_file.hpp"
#include "support/checkout.hpp"
#include "support/expect_error.hpp"
#include "support/job_run.hpp"
#include "support/script_models.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::run;
using test::expect_error;
using test::json;

namespace fs = std::filesystem;

namespace {

std::string saved(const std::string& name) {
  return test::source_file("tests/data/deepspeed_checkpoints/" + name);
}

torch::jit::Module make_linear(int64_t in, int64_t out, uint64_t seed) {
  return test::compile(
      {"Linear",
       "def forward(self, x):\n    return torch.linear(x, self.weight, self.bias)\n",
       {{"weight", test::random_weight({out, in}, seed)}, {"bias", test::random_weight({out}, seed + 1)}}});
}

torch::jit::Module make_tiny_block(uint64_t seed) {
  const auto norm =
      test::compile({"LayerNorm",
                     "def forward(self, x):\n    return torch.layer_norm(x, [6], self.weight, self.bias)\n",
                     {{"weight", test::random_weight({6}, seed)}, {"bias", test::random_weight({6}, seed + 1)}}});
  return test::compile(
      {.type = "Block",
       .source = R"(
    def forward(self, x):
        return x + self.down.forward(torch.gelu(self.up.forward(self.norm.forward(x))))
  )",
       .children = {{"norm", norm}, {"up", make_linear(6, 7, seed + 2)}, {"down", make_linear(7, 6, seed + 4)}}});
}

// TinyModel of tests/data/deepspeed_checkpoints/tiny_model.py, with other weights.
torch::jit::Module make_tiny_model() {
  const at::Tensor tied = test::random_weight({11, 6}, 1);
  const auto holder = [](const char* type, const at::Tensor& weight) {
    return test::compile({type, "def forward(self, x):\n    return x\n", {{"weight", weight}}});
  };
  const auto blocks = test::compile({.type = "Blocks",
                                     .source = "def forward(self, x):\n    return x\n",
                                     .children = {{"0", make_tiny_block(10)}, {"1", make_tiny_block(20)}}});
  return test::compile({"TinyModel",
                        R"(
    def forward(self, tokens, labels):
        x = torch.embedding(self.embedding.weight, tokens)
        x = getattr(self.blocks, "0").forward(x)
        x = getattr(self.blocks, "1").forward(x)
        x = torch.matmul(x, self.frozen.weight.t()) * self.gain + self.shift
        logits = torch.matmul(x, self.head.weight.t())
        return torch.cross_entropy_loss(logits.flatten(0, 1), labels.flatten())
  )",
                        {{"gain", at::ones({1}).set_requires_grad(true)}},
                        {{"shift", at::zeros({6})}},
                        {{"embedding", holder("Embedding", tied)},
                         {"blocks", blocks},
                         {"frozen", holder("Frozen", test::random_values({6, 6}, 2))},
                         {"head", holder("Head", tied)}}});
}

// All that DeepSpeed had at the save, by its own names of states; the head is tied to the embedding.
void check_states(const std::string& checkpoint, const std::string& name, bool has_model) {
  const auto states = test::states_of(checkpoint);
  const SafetensorsFile expected(saved(name) + "/expected.safetensors");
  size_t num_checked = 0;
  for (const auto& entry : expected.entries()) {
    const auto slash = entry.name.find('/');
    std::string state = entry.name.substr(0, slash);
    const std::string parameter = entry.name.substr(slash + 1);
    if (parameter == "head.weight") continue;
    if (state == "momentum_buffer") state = "momentum";
    if (state == "master" && parameter == "frozen.weight") state = "frozen";
    if (state == "master" && parameter == "shift") state = "buffer";
    INFO(name << " " << state << " of " << parameter << (has_model ? ", with the model" : ""));
    REQUIRE(states.count({parameter, state}) == 1);
    CHECK(states.at({parameter, state}).equal(expected.tensor(entry).to(at::kFloat).reshape({-1})));
    num_checked += 1;
  }
  CHECK(num_checked >= 16);
}

}  // namespace

TEST_CASE("an imported checkpoint has DeepSpeed's numbers", "[runtime][engine][import]") {
  log::set_level(log::Level::kError);
  const std::string name = GENERATE("stage0_fp32", "stage1_bf16", "stage2_fp16", "stage2_groups_fp32", "stage3_fp32");
  test::TempDir folder;
  make_tiny_model().save(folder / "tiny.pt");
  const bool has_model = GENERATE(true, false);
  std::vector<std::string> unfinished;
  ImportRequest request{.source = saved(name), .out = folder / "new/out/"};
  if (has_model) request.model = folder / "tiny.pt";
  request.before_writing = [&](std::vector<std::string> files) { unfinished = std::move(files); };
  const auto report = import_checkpoint(request);
  CHECK(report.step == 3);
  CHECK(report.version == "0.18.2");
  CHECK(report.optimizer_states == std::vector<std::string>{"exp_avg", "exp_avg_sq"});
  CHECK(report.has_loss_scale == (name == "stage2_fp16"));
  CHECK(report.num_frozen == 1);
  CHECK(report.num_buffers == 1);
  CHECK(report.checkpoint == folder / "new/out/step_00000003");
  CHECK(fs::exists(report.checkpoint + "/model.pt") == has_model);
  CHECK_FALSE(fs::exists(folder / "new/out.skeleton.tmp"));
  CHECK(std::count(unfinished.begin(), unfinished.end(), folder / "new") == 1);  // made by the import
  check_states(report.checkpoint, name, has_model);

  request.out = folder / "new/out";
  expect_error(ExitCode::kCannotCreate, {"already is a checkpoint", "--overwrite"},
               [&] { import_checkpoint(request); });
  request.overwrite = true;
  CHECK(import_checkpoint(request).checkpoint == report.checkpoint);
}

TEST_CASE("a run goes on from an imported checkpoint with DeepSpeed's losses", "[runtime][engine][import]") {
  const auto [name, stage, ranks] = GENERATE(table<std::string, int, int>(
      {{"stage1_fp32", 1, 2}, {"stage2_groups_fp32", 3, 2}, {"stage3_fp32", 0, 4}, {"stage0_sgd_fp32", 2, 1}}));
  INFO(name << " at stage " << stage << " on " << ranks << " ranks");
  test::TempDir folder;
  make_tiny_model().save(folder / "tiny.pt");
  // make_data() of tiny_model.py: LibTorch's generator gives the same numbers.
  auto generator = at::detail::createCPUGenerator(3);
  const at::Tensor tokens = at::randint(0, 11, {80, 5}, generator, at::kLong);
  test::write_samples(folder / "data.safetensors", {{"tokens", tokens}, {"labels", (tokens * 3 + 1) % 11}});
  const auto recorded = json::parse(test::read_file(saved(name) + "/expected.json"));
  json config;
  for (const char* key : {"train_batch_size", "gradient_clipping", "scheduler"}) config[key] = recorded["config"][key];
  config["zero_optimization"] = {{"stage", stage}, {"stage3_param_persistence_threshold", 0}};
  config["data"] = {{"train", folder / "data.safetensors"},
                    {"shuffle", false},
                    {"num_workers", 0},
                    {"inputs", {"tokens"}},
                    {"labels", {"labels"}}};
  config["optimizer"] = {{"type", "AdamW"}, {"params", {{"lr", 0.01}, {"weight_decay", 0.1}}}};
  if (name == "stage0_sgd_fp32") config["optimizer"] = {{"type", "SGD"}, {"params", {{"lr", 0.05}, {"momentum", 0.9}}}};
  if (name == "stage2_groups_fp32") config["optimizer"]["no_decay"] = {"ndim<2"};
  config["train"] = {{"steps", 8}};
  const auto report =
      import_checkpoint({.source = saved(name), .out = folder / "imported", .model = folder / "tiny.pt"});
  test::JobRun run{folder / "tiny.pt", folder / "run", config, ranks};
  run.prepare = [&](test::TrainRequest& request) { request.resume = report.checkpoint; };
  test::run_job(run);
  const auto metrics = test::metrics_of(run.run_dir);
  REQUIRE(metrics.size() == 5);
  for (size_t i = 0; i < metrics.size(); ++i) {
    CHECK(metrics[i].at("loss").get<double>() == Approx(recorded["losses_after"][i].get<double>()).epsilon(1e-6));
  }
}

TEST_CASE("an import that cannot be is refused and leaves nothing", "[runtime][engine][import]") {
  test::TempDir folder;
  expect_error(ExitCode::kUsage, {"has a checkpoint of DeepSpeed"},
               [&] { import_checkpoint({.source = saved("stage0_fp32"), .out = saved("stage0_fp32")}); });
  test::compile({"Other", "def forward(self, x):\n    return x * self.w\n", {{"w", test::random_weight({3}, 1)}}})
      .save(folder / "other.pt");
  expect_error(ExitCode::kBadInput, {"w"}, [&] {
    import_checkpoint({.source = saved("stage2_fp32"), .out = folder / "a/out", .model = folder / "other.pt"});
  });
  CHECK_FALSE(fs::exists(folder / "a"));
  expect_error(ExitCode::kNoInput, {},
               [&] { import_checkpoint({.source = folder / "none", .out = folder / "a/out"}); });
  CHECK_FALSE(fs::exists(folder / "a"));
}
