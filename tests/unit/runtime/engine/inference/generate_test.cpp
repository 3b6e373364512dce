// A byte-level model with the weights of a checkpoint continues a text.
#include "runtime/engine/inference/generate.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>

#include "runtime/engine/inference/checkpoint_model.hpp"
#include "runtime/model/torchscript/load_script_model.hpp"
#include "runtime/state/model_metadata.hpp"
#include "support/expect_error.hpp"
#include "support/initial_parameters.hpp"
#include "support/job_run.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::inference;
using test::expect_error;
using test::json;

namespace {

// forward(ids [batch, length]) -> (loss, logits): after byte b comes the byte whose logit in row b of the table is the
// largest. It takes at most `context` bytes.
torch::jit::Module make_text_net(const at::Tensor& table, int64_t context,
                                 const char* results = "logits.mean(), logits") {
  return test::compile({"TextNet",
                        fmt::format(R"(
    def forward(self, ids):
        assert ids.size(1) <= {}
        logits = torch.embedding(self.table, ids) * self.gain
        return {}
  )",
                                    context, results),
                        {{"table", table.clone().set_requires_grad(true)}, {"gain", at::ones({256})}},
                        {}});
}

// Byte b is followed by b + 1.
at::Tensor counting_table() {
  return at::eye(256).roll(1, 1) * 20;
}

std::string continued(model::Model& model, const GenerateOptions& options) {
  std::string out;
  generate(model, options, [&](char byte) { out += byte; });
  return out;
}

class GivenParameters : public test::InitialParameters {
 public:
  using test::InitialParameters::InitialParameters;
  void take_gradients(int, std::vector<at::Tensor>) override {}
};

// The model as its file has it.
struct FileModel {
  test::TempDir folder;
  std::unique_ptr<model::Model> model;
  std::unique_ptr<GivenParameters> parameters;

  // `metadata`: what its export has recorded.
  explicit FileModel(const torch::jit::Module& module, const std::string& metadata = R"({"format": 1})") {
    module.save(folder / "text.pt", {{kModelMetadataName, metadata}});
    model = model::torchscript::load_script_model(folder / "text.pt", {});
    parameters = std::make_unique<GivenParameters>(*model);
    model->runnable->set_unit_parameters(parameters.get());
  }
};

}  // namespace

TEST_CASE("the most likely byte follows", "[runtime][engine][generate]") {
  FileModel text(make_text_net(counting_table(), 8));
  CHECK(continued(*text.model, {.prompt = "a", .num_tokens = 5, .temperature = 0}) == "bcdef");
  // longer than the context, which is found by trying or given
  CHECK(continued(*text.model, {.prompt = "0123456789", .num_tokens = 3, .temperature = 0}) == ":;<");
  CHECK(continued(*text.model, {.prompt = "0123456789", .num_tokens = 3, .temperature = 0, .context = 2}) == ":;<");
  expect_error(ExitCode::kBadInput, {},
               [&] { continued(*text.model, {.prompt = "0123456789", .temperature = 0, .context = 9}); });
}

TEST_CASE("bytes are drawn by their probabilities, the same for the same seed", "[runtime][engine][generate]") {
  // After any byte: 'a' with probability 3/4, 'b' with 1/4.
  at::Tensor table = at::full({256, 256}, -100.0F);
  table.select(1, 'a').fill_(std::log(3.0F));
  table.select(1, 'b').fill_(0.0F);
  FileModel text(make_text_net(table, 4));
  const GenerateOptions options{.prompt = "x", .num_tokens = 400, .temperature = 1, .seed = 5};
  const std::string drawn = continued(*text.model, options);
  const auto num_a = std::count(drawn.begin(), drawn.end(), 'a'), num_b = std::count(drawn.begin(), drawn.end(), 'b');
  CHECK(num_a + num_b == 400);
  CHECK(std::abs(num_a - 300) < 5 * 9);  // five standard deviations
  CHECK(continued(*text.model, options) == drawn);
  GenerateOptions other = options;
  other.seed = 6;
  CHECK(continued(*text.model, other) != drawn);
  other.temperature = 0.01;  // next to none but the most likely
  CHECK(continued(*text.model, other) == std::string(400, 'a'));
}

TEST_CASE("what cannot continue a text is said", "[runtime][engine][generate]") {
  FileModel alone(make_text_net(counting_table(), 8, "logits.mean()"));
  expect_error(ExitCode::kBadInput,
               {"does not return logits of at least 256 classes", "3 tokens", "export it with --returns loss_logits"},
               [&] { continued(*alone.model, {.prompt = "abc", .context = 8}); });
  FileModel second(make_text_net(counting_table(), 8, "logits.mean(), logits.sum(), logits"));
  CHECK(continued(*second.model, {.prompt = "a", .num_tokens = 2, .temperature = 0}) == "bc");
  const std::string dict = "{'hidden': torch.zeros_like(logits), 'logits': logits}";
  CHECK(continued(*FileModel(make_text_net(counting_table(), 8, dict.c_str())).model,
                  {.prompt = "a", .num_tokens = 2, .temperature = 0}) == "bc");
  FileModel words(make_text_net(counting_table(), 8, "logits.mean(), torch.cat([logits, logits], -1)"));
  expect_error(ExitCode::kBadInput,
               {"the model's vocabulary has 512 tokens, so they are not bytes", "the tokenizer that made its data"},
               [&] { continued(*words.model, {.prompt = "a"}); });
  expect_error(ExitCode::kBadInput, {"'dslaunch consolidate --hf'", "its tokenizer is that of '/models/llama'"},
               [&] { continued(*words.model, {.prompt = "a", .tokenizer = "'/models/llama'"}); });
  FileModel diverged(make_text_net(counting_table() * std::nan(""), 8));
  expect_error(ExitCode::kBadInput, {"not finite"}, [&] { continued(*diverged.model, {.prompt = "a"}); });
  expect_error(ExitCode::kUsage, {"prompt is empty"}, [&] { continued(*alone.model, {.prompt = ""}); });
}

TEST_CASE("a model that does not take texts, or not this one, is refused by what is known of it",
          "[runtime][engine][generate]") {
  const auto layer = test::compile({"Net",
                                    "def forward(self, x):\n    return torch.matmul(x, self.head)\n",
                                    {{"head", at::ones({6, 2}).set_requires_grad(true)}},
                                    {}});
  const FileModel recorded(layer, R"({"format": 1, "inputs": [{"name": "x", "dtype": "float32", "shape": [6]}]})");
  expect_error(
      ExitCode::kBadInput,
      {"does not take texts: a sample of its argument 'x' is float32 of the size [6], as the model file records"},
      [&] { continued(*recorded.model, {.prompt = "abc"}); });
  const FileModel digits(make_text_net(counting_table().narrow(0, 0, 98), 8));
  expect_error(ExitCode::kBadInput, {"the text has the byte 98 ('b'), and the model's vocabulary has 98 tokens"},
               [&] { continued(*digits.model, {.prompt = "ab"}); });
  expect_error(ExitCode::kBadInput, {"the text has the byte 195, and the model's vocabulary has 98 tokens"},
               [&] { continued(*digits.model, {.prompt = "\u00e9"}); });
  std::string given;
  expect_error(ExitCode::kBadInput, {"the text has the byte 98"}, [&] {
    generate(*digits.model, {.prompt = "a", .num_tokens = 2, .temperature = 0}, [&](char byte) { given += byte; });
  });
  CHECK(given == "b");
}

TEST_CASE("a checkpoint's own model runs with its weights and buffers", "[runtime][engine][generate]") {
  const int stage = GENERATE(0, 3);
  const auto net = test::compile({"TextNet",
                                  R"(
    def forward(self, ids):
        logits = torch.embedding(self.table, ids) * self.gain
        if self.training:
            self.seen.add_(1)
        return logits.square().mean(), logits + self.seen * self.shift
  )",
                                  {{"table", counting_table().set_requires_grad(true)}, {"gain", at::ones({256})}},
                                  {{"seen", at::zeros({1})}, {"shift", at::eye(256)[65] * 100}}});
  test::JobFiles files(net);
  test::write_samples(files.folder / "data.safetensors", {{"ids", at::arange(96).reshape({24, 4})}});
  const json changes{
      {"loss", nullptr},
      {"optimizer",
       {{"type", "SGD"}, {"params", {{"lr", 0.0}, {"betas", nullptr}, {"eps", nullptr}, {"weight_decay", nullptr}}}}},
      {"zero_optimization", {{"stage", stage}, {"stage3_param_persistence_threshold", 0}}}};
  const test::JobRun run{files.model, files.folder / "run", files.config(changes, {{"train", {{"steps", 1}}}}), 2};
  test::run_job(run);
  const auto loaded = load_checkpoint_model(run.run_dir + "/checkpoints");
  CHECK(loaded->model().facts.table.num_elements() == 256 * 256 + 256);
  // One step has counted one call (12 samples, 2 ranks: one micro batch each), which makes 'A' the most likely byte.
  CHECK(continued(loaded->model(), {.prompt = "x", .num_tokens = 3, .temperature = 0, .context = 4}) == "AAA");
  const test::TempDir files_of_parameters;
  const auto streamed = load_checkpoint_model(run.run_dir + "/checkpoints", files_of_parameters.path());
  CHECK(continued(streamed->model(), {.prompt = "x", .num_tokens = 3, .temperature = 0, .context = 4}) == "AAA");
  std::filesystem::remove(run.run_dir + "/checkpoints/step_00000001/model.pt");
  expect_error(ExitCode::kBadInput, {"model.pt"}, [&] { load_checkpoint_model(run.run_dir + "/checkpoints"); });
}
