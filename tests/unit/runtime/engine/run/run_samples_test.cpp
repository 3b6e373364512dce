// train.samples: texts that a run writes at its evaluations, and that training does not change by them.
#include "runtime/engine/run/run_samples.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>

#include "runtime/engine/inference/generate_texts.hpp"
#include "runtime/engine/inference/infer_model.hpp"
#include "runtime/engine/inference/score_texts.hpp"
#include "support/expect_error.hpp"
#include "support/job_run.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using test::expect_error;
using test::JobRun;
using test::json;

namespace {

constexpr int64_t kWidth = 8;

// A frozen weight with a trained low-rank part beside it, and dropout.
torch::jit::Module make_block(uint64_t seed, double dropout) {
  return test::compile({"Block",
                        fmt::format(R"(
    def forward(self, x):
        h = torch.dropout(x, {:.1f}, self.training)
        return x + torch.tanh(torch.linear(h, self.frozen) + torch.matmul(torch.matmul(h, self.a), self.b))
  )",
                                    dropout),
                        {{"frozen", test::random_values({kWidth, kWidth}, seed, 0.3)},
                         {"a", test::random_weight({kWidth, 4}, seed + 1)},
                         {"b", test::random_weight({4, kWidth}, seed + 2)}},
                        {},
                        {}});
}

// A model of bytes that returns only its loss, and counts how often it was trained.
torch::jit::Module make_byte_net(double dropout) {
  return test::compile(
      {"ByteNet",
       R"(
    def forward(self, ids, labels):
        if self.training:
            self.calls += 1
        x = self.second.forward(self.first.forward(torch.embedding(self.table, ids)))
        logits = torch.linear(x * self.scale, self.head)
        return torch.cross_entropy_loss(logits.view(-1, 256), labels.view(-1))
  )",
       {{"table", test::random_weight({256, kWidth}, 1)}, {"head", test::random_weight({256, kWidth}, 2)}},
       {{"calls", at::zeros({})}, {"scale", at::full({kWidth}, 1.5)}},
       {{"first", make_block(10, dropout)}, {"second", make_block(20, dropout)}}});
}

// Texts that count: after each byte comes the next.
struct ByteFiles {
  test::MemoryDir folder;
  std::string model = folder / "bytes.pt";

  explicit ByteFiles(double dropout = 0) {
    log::set_level(log::Level::kError);
    at::set_num_threads(1);
    make_byte_net(dropout).save(model);
    const at::Tensor ids = at::arange(97, 105).unsqueeze(0) + at::arange(24).remainder(5).unsqueeze(1);
    test::write_samples(folder / "data.safetensors", {{"ids", ids}, {"labels", ids + 1}});
  }

  // Six steps with an evaluation after each third.
  JobRun run(const std::string& name, int ranks, const json& changes, const json& samples = nullptr) const {
    const std::string data = folder / "data.safetensors";
    const json base{{"train_batch_size", 8},
                    {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.1}}}}},
                    {"data", {{"train", data}, {"eval", data}, {"num_workers", 0}}},
                    {"train", {{"steps", 6}, {"eval_interval", 3}}}};
    json config = test::with(base, changes);
    if (!samples.is_null()) config["train"]["samples"] = samples;
    return {model, folder / name, config, ranks};
  }
};

const json kSamples{{"prompts", {"abc", json{{"prompt", "e"}, {"reference", "fghi"}}, json{{"ids", {99, 100}}}}},
                    {"num_tokens", 4}};

json stage(int number) {
  return {{"zero_optimization", {{"stage", number}, {"stage3_param_persistence_threshold", 0}}}};
}

std::vector<json> texts_of(const JobRun& run) {
  std::vector<json> out;
  std::ifstream in(run.run_dir + "/samples.jsonl");
  for (std::string line; std::getline(in, line);) out.push_back(json::parse(line));
  return out;
}

// What dslaunch infer writes with the weights of the run's last checkpoint.
std::vector<std::string> inferred(const JobRun& run, at::ScalarType dtype) {
  const auto model = engine::inference::open_model({.path = run.run_dir + "/checkpoints", .dtype = dtype});
  engine::inference::GenerateOptions options{
      .prompts = {{"abc", {}, false, ""}, {"e", {}, false, ""}, {"cd", {}, false, ""}},
      .num_tokens = 4,
      .sampling = {.temperature = 0}};
  std::vector<std::string> out(options.prompts.size());
  generate_texts(*model, at::kCPU, options, {.on_finished = [&](size_t i, const auto& text) { out[i] = text.text; }});
  return out;
}

}  // namespace

TEST_CASE("a run writes texts at its evaluations, and trains as it does without them",
          "[runtime][engine][run_samples]") {
  const json half{{"bf16", {{"enabled", true}}}},
      offload{
          {"zero_optimization", {{"offload_param", {{"device", "cpu"}}}, {"offload_optimizer", {{"device", "cpu"}}}}}};
  const auto [zero, ranks, more] = GENERATE_COPY(table<int, int, json>({{0, 1, json::object()},
                                                                        {0, 2, half},
                                                                        {1, 2, json::object()},
                                                                        {2, 2, json::object()},
                                                                        {3, 3, half},
                                                                        {3, 2, json::object()},
                                                                        {3, 1, offload},
                                                                        {3, 2, offload}}));
  INFO("stage " << zero << ", " << ranks << " ranks, " << more);
  const ByteFiles files(ranks == 1 ? 0.2 : 0);  // ranks that are threads draw from one stream of random numbers
  const json changes = test::with(test::with(stage(zero), more), {{"train_batch_size", 12}});
  const auto plain = files.run("plain", ranks, changes), sampled = files.run("sampled", ranks, changes, kSamples);
  test::run_job(plain);
  test::run_job(sampled);
  const auto expected = test::metrics_of(plain.run_dir), metrics = test::metrics_of(sampled.run_dir);
  REQUIRE((expected.size() == 6 && metrics.size() == 6));
  for (size_t i = 0; i < 6; ++i) {
    for (const char* key : {"step", "loss", "grad_norm"}) CHECK(metrics[i].at(key) == expected[i].at(key));
    CHECK(metrics[i].contains("eval_exact_match") == (i == 2 || i == 5));
    if (i == 2 || i == 5) CHECK(metrics[i].at("eval_loss") == expected[i].at("eval_loss"));
  }
  const auto states_of = [](const JobRun& run) { return test::states_of(run.run_dir + "/checkpoints/step_00000006"); };
  CHECK(test::first_difference(states_of(plain), states_of(sampled)) == "");

  const auto texts = texts_of(sampled);
  REQUIRE(texts.size() == 6);
  const auto at_end = inferred(sampled, more.contains("bf16") ? at::kBFloat16 : at::kFloat);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(texts[i].at("step") == 3);
    CHECK(texts[i + 3].at("step") == 6);
    CHECK(texts[i + 3].at("finish") == "length");
  }
  CHECK(texts[3].at("text") == at_end[0]);
  CHECK(texts[4].at("text") == at_end[1]);
  CHECK(texts[3].at("prompt") == "abc");
  CHECK(texts[4].at("reference") == "fghi");
  CHECK(metrics[5].at("eval_exact_match") == (at_end[1] == "fghi" ? 1 : 0));
  CHECK(texts[5].at("text") == at_end[2]);
  CHECK(texts[5].at("prompt") == "99 100");
}

TEST_CASE("samples that do not go together with the model end a run before its first step",
          "[runtime][engine][run_samples]") {
  const auto [samples, parts] = GENERATE(table<json, std::vector<std::string>>({
      {{{"prompts", {json{{"ids", {1, 300}}}}}}, {"prompt 1 of 'train.samples' has the id 300", "256 tokens"}},
      {{{"prompts", {"a"}}, {"metric_command", "exit 3"}}, {"'exit 3' failed with the exit code 3"}},
      {{{"prompts", {"a"}}, {"metric_command", "echo 0.5"}}, {"printed \"0.5", "expected one JSON object of numbers"}},
      {{{"prompts", {"a"}}, {"metric_command", "echo '{\"loss\": 1}'"}}, {"another value named 'eval_loss'"}},
  }));
  const ByteFiles files;
  const auto run = files.run("bad", 1, stage(0), samples);
  expect_error(ExitCode::kBadInput, parts, [&, &samples = run] { test::run_job(samples); });
  CHECK(test::metrics_of(run.run_dir).empty());
}

TEST_CASE("a command measures texts, and the run may decide by what it prints", "[runtime][engine][run_samples]") {
  // The number of texts, and whether the second has a reference.
  const std::string command = R"(tee lines | awk 'END { printf "{\"texts\": %d, \"with_reference\": 1}", NR }')";
  const ByteFiles files;
  const std::string lines = files.folder / "lines";
  const std::string own = "cd '" + std::filesystem::path(lines).parent_path().string() + "' && " + command;
  const auto run = files.run("run", 1, {{"checkpoint", {{"keep_best", {{"metric", "eval_texts"}, {"mode", "max"}}}}}},
                             test::with(kSamples, {{"metric_command", own}}));
  test::run_job(run);
  const auto metrics = test::metrics_of(run.run_dir);
  REQUIRE(metrics.size() == 6);
  CHECK(metrics[2].at("eval_texts") == 3);
  CHECK(metrics[5].at("eval_with_reference") == 1);
  std::ifstream in(lines);
  std::string line;
  std::getline(in, line);
  std::getline(in, line);
  CHECK(json::parse(line) == json{{"prompt", "e"}, {"text", texts_of(run)[4].at("text")}, {"reference", "fghi"}});
  CHECK(std::filesystem::exists(run.run_dir + "/checkpoints/best"));
  const auto other = run.with_changes({{"checkpoint", {{"keep_best", {{"metric", "eval_bleu"}}}}}});
  expect_error(ExitCode::kBadInput, {"the run decides by 'eval_bleu'", "metric_command has printed no 'bleu'"}, [&] {
    JobRun fresh = other;
    fresh.run_dir = files.folder / "other";
    test::run_job(fresh);
  });
}

TEST_CASE("a command that fails after the run's first step costs its values only", "[runtime][engine][run_samples]") {
  const ByteFiles files;
  const std::string flag = files.folder / "flag";  // of the trial before the first step
  const std::string command = fmt::format("test ! -e {0} && touch {0} && echo '{{\"n\": 1}}'", flag);
  const auto run = files.run("run", 1, stage(0), test::with(kSamples, {{"metric_command", command}}));
  CHECK(test::run_job(run) == test::TrainOutcome::kFinished);
  CHECK(texts_of(run).size() == 6);
  const auto last = test::metrics_of(run.run_dir).back();
  CHECK((last.contains("eval_exact_match") && !last.contains("eval_n")));
}

TEST_CASE("a request to stop ends texts that are being written", "[runtime][engine][run_samples]") {
  const auto [zero, ranks] = GENERATE(table<int, int>({{0, 1}, {3, 2}}));
  const ByteFiles files;
  auto run = files.run("run", ranks, stage(zero), test::with(kSamples, {{"num_tokens", 1'000'000}}));
  std::atomic<int> num_polls = 0;  // a step polls once: the rest of a hundred is for texts
  run.prepare = [&](test::TrainRequest& request) { request.stop_requested = [&] { return ++num_polls > 100; }; };
  CHECK(test::run_job(run) == test::TrainOutcome::kStopped);
  CHECK(texts_of(run).empty());
  const auto metrics = test::metrics_of(run.run_dir);
  CHECK(metrics.at(2).contains("eval_loss"));
  CHECK(metrics.size() == 4);
  CHECK(std::filesystem::exists(run.run_dir + "/checkpoints/step_00000004"));
}

TEST_CASE("the loss of a run's last evaluation is the score of its data", "[runtime][engine][run_samples]") {
  const ByteFiles files;
  const auto run = files.run("run", 2, stage(3));
  test::run_job(run);
  const auto model = engine::inference::open_model({.path = run.run_dir + "/checkpoints"});
  const auto score = engine::inference::score_data(*model, at::kCPU, files.folder / "data.safetensors");
  CHECK(score.num_tokens == 24 * 8);
  CHECK(score.loss() == Approx(test::metrics_of(run.run_dir).back().at("eval_loss").get<double>()).epsilon(1e-6));
}
