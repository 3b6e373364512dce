// A byte-level model with the weights of a checkpoint continues a text.
#include "runtime/engine/inference/generate_texts.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>

#include "runtime/engine/inference/forward_data.hpp"
#include "runtime/engine/inference/infer_model.hpp"
#include "runtime/engine/inference/score_texts.hpp"
#include "runtime/engine/inference/session.hpp"
#include "runtime/state/model_metadata.hpp"
#include "runtime/state/safetensors_file.hpp"
#include "support/expect_error.hpp"
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

GenerateOptions continuing(const std::string& prompt, int64_t num_tokens = 200) {
  return {.prompts = {{prompt, {}, false, "the prompt"}}, .num_tokens = num_tokens, .sampling = {.temperature = 0}};
}

std::string continued(InferModel& model, const GenerateOptions& options) {
  std::string shown, finished;
  generate_texts(model, at::kCPU, options,
                 {.on_text = [&](size_t, const std::string& text) { shown += text; },
                  .on_finished = [&](size_t, const WrittenText& text) { finished = text.text; }});
  CHECK(shown == finished);
  return finished;
}

// The model as its file has it.
struct FileModel {
  test::TempDir folder;
  std::unique_ptr<InferModel> model;

  // `metadata`: what its export has recorded.
  explicit FileModel(const torch::jit::Module& module, const std::string& metadata = R"({"format": 1})") {
    module.save(folder / "text.pt", {{kModelMetadataName, metadata}});
    model = open_model({.path = folder / "text.pt"});
  }
};

}  // namespace

TEST_CASE("the most likely byte follows", "[runtime][engine][generate]") {
  FileModel text(make_text_net(counting_table(), 8));
  CHECK(continued(*text.model, continuing("a", 5)) == "bcdef");
  CHECK(continued(*text.model, continuing("0", 12)) == "123456789:;<");  // becomes longer than the model takes
  auto longer = continuing("0123456789", 3);
  expect_error(ExitCode::kBadInput, {"the prompt has 10 tokens, and the model takes at most 8", "--context 8"},
               [&] { continued(*text.model, longer); });
  longer.model.context = 2;
  CHECK(continued(*text.model, longer) == ":;<");
  longer.model.context = 9;
  expect_error(ExitCode::kBadInput, {"the model takes at most 8"}, [&] { continued(*text.model, longer); });
}

TEST_CASE("bytes are drawn by their probabilities, the same for the same seed", "[runtime][engine][generate]") {
  // After any byte: 'a' with probability 3/4, 'b' with 1/4.
  at::Tensor table = at::full({256, 256}, -100.0F);
  table.select(1, 'a').fill_(std::log(3.0F));
  table.select(1, 'b').fill_(0.0F);
  FileModel text(make_text_net(table, 4));
  GenerateOptions options = continuing("x", 400);
  options.sampling.temperature = 1;
  options.seed = 5;
  const std::string drawn = continued(*text.model, options);
  const auto num_a = std::count(drawn.begin(), drawn.end(), 'a'), num_b = std::count(drawn.begin(), drawn.end(), 'b');
  CHECK(num_a + num_b == 400);
  CHECK(std::abs(num_a - 300) < 5 * 9);  // five standard deviations
  CHECK(continued(*text.model, options) == drawn);
  GenerateOptions other = options;
  other.seed = 6;
  CHECK(continued(*text.model, other) != drawn);
  other.sampling.temperature = 0.01;  // next to none but the most likely
  CHECK(continued(*text.model, other) == std::string(400, 'a'));
}

TEST_CASE("what cannot continue a text is said", "[runtime][engine][generate]") {
  FileModel alone(make_text_net(counting_table(), 8, "logits.mean()"));
  expect_error(ExitCode::kBadInput, {"no logits for each of the 1 tokens", "--returns loss_logits", "cross_entropy"},
               [&] { continued(*alone.model, continuing("abc")); });
  FileModel second(make_text_net(counting_table(), 8, "logits.mean(), logits.sum(), logits"));
  CHECK(continued(*second.model, continuing("a", 2)) == "bc");
  const std::string dict = "{'hidden': torch.zeros_like(logits), 'logits': logits}";
  CHECK(continued(*FileModel(make_text_net(counting_table(), 8, dict.c_str())).model, continuing("a", 2)) == "bc");
  FileModel words(make_text_net(counting_table(), 8, "logits.mean(), torch.cat([logits, logits], -1)"));
  expect_error(ExitCode::kBadInput, {"the model's vocabulary has 512 tokens, so they are not bytes", "--ids"},
               [&] { continued(*words.model, continuing("a")); });
  FileModel diverged(make_text_net(counting_table() * std::nan(""), 8));
  expect_error(ExitCode::kBadInput, {"not finite"}, [&] { continued(*diverged.model, continuing("a")); });
  expect_error(ExitCode::kUsage, {"prompt is empty"}, [&] { continued(*second.model, continuing("")); });
}

TEST_CASE("a model without layers that can be quantized is refused", "[runtime][engine][generate]") {
  FileModel text(make_text_net(counting_table(), 8));
  ModelSource source{.path = text.folder / "text.pt", .weight_type = model::WeightType::kInt8};
  expect_error(ExitCode::kBadInput,
               {"no linear layers whose weights can be int8", "none of its outputs is named logits"},
               [&] { open_model(source); });
  FileModel unmixed(make_text_net(counting_table(), 8, "{'logits': logits}"));
  source.path = unmixed.folder / "text.pt";
  expect_error(ExitCode::kBadInput, {"whose weights can be int8", "multiplies by no parameters"},
               [&] { open_model(source); });
}

TEST_CASE("a text goes through the tokenizer beside the model, or the one that is named",
          "[runtime][engine][generate]") {
  FileModel words(make_text_net(counting_table(), 8, "logits.mean(), torch.cat([logits, logits], -1)"));
  const std::string tokenizer = R"({"decoder": {"type": "ByteLevel"}, "pre_tokenizer": {"type": "ByteLevel",
    "add_prefix_space": false}, "model": {"type": "BPE", "merges": ["a b"], "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3, "d": 4,
    "e": LAST}}})";
  const auto with_last = [&](const std::string& last) {
    return std::string(tokenizer).replace(tokenizer.find("LAST"), 4, last);
  };
  words.folder.write("tokenizer.json", with_last("5"));
  CHECK(continued(*words.model, continuing("ab", 2)) == "cd");
  words.folder.write("tokenizer.json", with_last("256"));
  expect_error(ExitCode::kBadInput, {"does not fit the model", "it has 257 tokens", "embeddings of 256"},
               [&] { continued(*words.model, continuing("ab", 2)); });
  FileModel bytes(make_text_net(counting_table(), 8));
  std::filesystem::create_directory(bytes.folder / "other");
  bytes.folder.write("other/tokenizer.json", with_last("5"));
  const auto named = open_model({.path = bytes.folder / "text.pt", .tokenizer = bytes.folder / "other"});
  CHECK(continued(*named, continuing("ab", 2)) == "cd");
  const ModelSource missing{.path = bytes.folder / "text.pt", .tokenizer = bytes.folder / "none"};
  expect_error(ExitCode::kNoInput, {"cannot read tokenizer"},
               [&] { continued(*open_model(missing), continuing("ab")); });
}

TEST_CASE("logits are found in front of the loss, whatever stands between them", "[runtime][engine][generate]") {
  const char* losses[] = {
      "torch.cross_entropy_loss(logits.view(-1, 256).float(), labels.reshape(-1))",
      "torch.cross_entropy_loss(logits[:, :-1].reshape(-1, 256), labels[:, 1:].reshape(-1))",
      "torch.cross_entropy_loss(logits.transpose(1, 2), labels)",
      "torch.nll_loss(torch.log_softmax(logits, -1).view(-1, 256), labels.view(-1))",
  };
  for (const char* loss : losses) {
    const FileModel only_loss(test::compile({"LossNet",
                                             fmt::format(R"(
    def forward(self, ids, mask, labels):
        logits = torch.embedding(self.table, ids) * mask.unsqueeze(-1)
        return {}
  )",
                                                         loss),
                                             {{"table", counting_table().set_requires_grad(true)}},
                                             {}}));
    CHECK(continued(*only_loss.model, continuing("a", 3)) == "bcd");
  }
}

TEST_CASE("a text ends at the texts and the tokens that end it", "[runtime][engine][generate]") {
  FileModel text(make_text_net(counting_table(), 8));
  auto options = continuing("a", 9);
  options.stops = {"xy", "ef", "never comes"};
  CHECK(continued(*text.model, options) == "bcd");
  options.stops = {"never comes"};
  options.stop_ids = {'f'};
  CHECK(continued(*text.model, options) == "bcde");
  // A character of two bytes is shown when both are there.
  at::Tensor table = counting_table();
  table.select(0, 'a').zero_()[0xc3] = 20;
  table.select(0, 0xc3).zero_()[0xa9] = 20;
  FileModel accented(make_text_net(table, 8));
  std::vector<std::string> shown;
  generate_texts(*accented.model, at::kCPU, continuing("a", 2),
                 {.on_text = [&](size_t, const std::string& part) { shown.push_back(part); }});
  CHECK(shown == std::vector<std::string>{"\u00e9"});
}

TEST_CASE("texts do not depend on the order of the prompts", "[runtime][engine][generate]") {
  FileModel text(make_text_net(at::eye(256) * 3, 8));
  const std::vector<std::string> prompts{"one", "two", "three", "two"};
  const auto written = [&](const std::vector<std::string>& texts) {
    GenerateOptions options{.num_tokens = 8, .sampling = {.temperature = 1}, .seed = 3};
    for (const auto& prompt : texts) options.prompts.push_back({prompt, {}, false, "a prompt"});
    std::multimap<std::string, std::vector<int64_t>> out;
    generate_texts(*text.model, at::kCPU, options,
                   {.on_finished = [&](size_t i, const WrittenText& one) { out.emplace(texts[i], one.ids); }});
    return out;
  };
  const auto once = written(prompts);
  CHECK(once == written({"three", "two", "two", "one"}));
  const auto [first, end] = once.equal_range("two");
  CHECK(first->second != std::next(first)->second);
}

TEST_CASE("each token is read once, unless positions are mixed by something else than attention",
          "[runtime][engine][generate]") {
  const char* attention = "torch.scaled_dot_product_attention(q, q, q, is_causal=True)";
  const char* written_out = R"(torch.matmul(torch.softmax(torch.where(
            torch.arange(n).unsqueeze(0) <= torch.arange(n).unsqueeze(1), torch.matmul(q, q.transpose(2, 3)) * 0.5,
            torch.full([1], -1000.0)), -1), q))";
  struct Case {
    const char* mixed;
    std::string cache;
  };
  const std::vector<Case> cases{
      {attention, "on"},
      {written_out, "on"},
      {"torch.cumsum(q, 2)", "aten::cumsum mixes tokens of different positions"},
      {"torch.conv1d(torch.constant_pad_nd(q[:, 0].transpose(1, 2), [2, 0]), self.kernel, groups=16).transpose(1, "
       "2).unsqueeze(1)",
       "aten::conv1d mixes tokens of different positions"},
  };
  at::manual_seed(4);
  for (const auto& [mixed, cache] : cases) {
    INFO(mixed);
    const FileModel net(test::compile({"MixingNet",
                                       fmt::format(R"(
    def forward(self, ids, labels):
        n = ids.size(1)
        x = torch.embedding(self.table, ids) + torch.embedding(self.positions, torch.arange(n))
        q = x.unsqueeze(1)
        y = {}
        logits = torch.matmul(x + y.squeeze(1), self.table.t())
        return torch.cross_entropy_loss(logits.view(-1, 256), labels.view(-1))
  )",
                                                   mixed),
                                       {{"table", at::randn({256, 16}).set_requires_grad(true)},
                                        {"positions", at::randn({24, 16}).set_requires_grad(true)},
                                        {"kernel", at::randn({16, 1, 3}).set_requires_grad(true)}},
                                       {}}));
    std::vector<std::vector<std::vector<int64_t>>> written;
    for (const auto& [uses_cache, steps] : {std::pair{true, false}, {true, true}, {false, false}}) {
      GenerateOptions options{
          .prompts = {{"abcde", {}, false, "a"}, {"xy", {}, false, "b"}, {"012345678", {}, false, "c"}},
          .num_tokens = 20,  // more than there are positions
          .sampling = {.temperature = 0.7},
          .model = {.uses_cache = uses_cache, .steps_on_host = steps}};
      auto& texts = written.emplace_back(3);
      const auto report =
          generate_texts(*net.model, at::kCPU, options,
                         {.on_finished = [&](size_t i, const WrittenText& text) { texts[i] = text.ids; }});
      CHECK(report.cache == (!uses_cache ? "off: --no_cache" : cache == "on" ? "on" : "off: " + cache));
      CHECK((report.cache_bytes > 0) == (report.cache == "on"));
      CHECK((report.steps != "off") == (steps && mixed == attention));
    }
    CHECK(written[0] == written[1]);
    CHECK(written[0] == written[2]);
  }
}

TEST_CASE("texts that are written in steps are those that are written token by token", "[runtime][engine][generate]") {
  at::manual_seed(5);
  const FileModel net(test::compile({"GroupedNet",
                                     R"(
    def forward(self, ids, labels):
        n = ids.size(1)
        angles = torch.arange(n).unsqueeze(1) * self.rates
        x = torch.embedding(self.table, ids)
        q = (torch.matmul(x, self.query) * torch.cos(angles)).view([1, n, 4, 8]).transpose(1, 2)
        k = (torch.matmul(x, self.key) * torch.cos(angles[:, :16])).view([1, n, 2, 8]).transpose(1, 2)
        far = torch.arange(n).unsqueeze(1) - torch.arange(n).unsqueeze(0)
        mask = (far >= 0) & (far < 5)
        y = torch.scaled_dot_product_attention(q, k, k * 2, mask, 0.0, False, scale=0.4, enable_gqa=True)
        logits = torch.matmul(y.transpose(1, 2).reshape([1, n, 32]) + x, self.table.t())
        return torch.cross_entropy_loss(logits.view(-1, 256), labels.view(-1))
  )",
                                     {{"table", at::randn({256, 32}).set_requires_grad(true)},
                                      {"query", at::randn({32, 32}).set_requires_grad(true)},
                                      {"key", at::randn({32, 16}).set_requires_grad(true)},
                                      {"rates", at::rand({32}).set_requires_grad(true)}},
                                     {}}));
  const std::vector<std::pair<const char*, Sampling>> cases{
      {"greedy", {.temperature = 0}},
      {"drawn", {.temperature = 0.9}},
      {"limited", {.temperature = 1.3, .top_k = 40, .top_p = 0.9, .min_p = 0.01}},
      {"penalized", {.temperature = 0, .repetition_penalty = 1.5}},
      {"both", {.temperature = 1, .top_p = 0.8, .repetition_penalty = 1.2}},
  };
  for (const auto& [what, sampling] : cases) {
    INFO(what);
    std::vector<std::map<size_t, std::pair<std::vector<int64_t>, std::string>>> written;
    for (const bool steps : {false, true}) {
      GenerateOptions options{.num_tokens = 80,  // more than a page
                              .sampling = sampling,
                              .seed = 11,
                              .stop_ids = {7, 77, 177},
                              .model = {.steps_on_host = steps}};
      // Of the first case more than are written at once: prompts come while steps write the other texts.
      const size_t count = what == std::string("greedy") ? Session::kMaxTexts + 20 : 20;
      for (size_t i = 0; i < count; ++i) {
        Prompt prompt{std::string(1 + i % 5, static_cast<char>('a' + i % 26)), {}, false, "a"};
        if (i >= 20) prompt.num_tokens = 1 + i % 12;
        options.prompts.push_back(std::move(prompt));
      }
      auto& texts = written.emplace_back();
      const auto report =
          generate_texts(*net.model, at::kCPU, options, {.on_finished = [&](size_t i, const WrittenText& text) {
            texts[i] = {text.ids, text.finish};
          }});
      CHECK(report.cache == "on");
      CHECK(report.steps == (steps ? "on the device" : "off"));
    }
    CHECK(written[0] == written[1]);
    for (const auto& [i, text] : written[0]) {
      const auto most = i < 20 ? size_t{80} : 1 + i % 12;
      CHECK((text.second == "length" ? text.first.size() == most : text.first.size() <= most));
    }
  }
}

TEST_CASE("the bytes that steps read are those of weights and of the cache", "[runtime][engine][generate]") {
  at::manual_seed(6);
  const FileModel net(test::compile({"UntiedNet",
                                     R"(
    def forward(self, ids, labels):
        n = ids.size(1)
        x = torch.embedding(self.table, ids)
        q = torch.matmul(x, self.query).view([1, n, 4, 8]).transpose(1, 2)
        y = torch.scaled_dot_product_attention(q, q, q, None, 0.0, True)
        logits = torch.matmul(y.transpose(1, 2).reshape([1, n, 32]) + x, self.head)
        return torch.cross_entropy_loss(logits.view(-1, 256), labels.view(-1))
  )",
                                     {{"table", at::randn({256, 32}).set_requires_grad(true)},
                                      {"query", at::randn({32, 32}).set_requires_grad(true)},
                                      {"head", at::randn({32, 256}).set_requires_grad(true)}},
                                     {}}));
  GenerateOptions options{.prompts = {{"abcd", {}, false, "a"}},
                          .num_tokens = 3,
                          .sampling = {.temperature = 0},
                          .measures_memory_rate = true};
  const auto report = generate_texts(*net.model, at::kCPU, options, {});
  CHECK(report.cache == "on");
  REQUIRE(report.decode_steps.size() == 2);
  const int64_t weights = 32 * 32 + 32 * 256, token = 2 * 32;  // rows of the table are looked up
  CHECK(report.read_bytes == 4 * (2 * weights + (5 + 6) * token));
  CHECK(report.memory_rate > 0);
}

TEST_CASE("scores are those of PyTorch's cross entropy", "[runtime][engine][generate]") {
  const at::Tensor table = at::arange(256 * 256).remainder(17).reshape({256, 256}).to(at::kFloat) / 5;
  FileModel text(make_text_net(table, 8));
  const auto scores = score_texts(*text.model, at::kCPU, {{"abcd", {}, false, "a text"}});
  const at::Tensor rows = at::log_softmax(table.narrow(0, 'a', 3), -1);
  double expected = 0;
  for (int64_t i = 0; i < 3; ++i) expected += rows[i]['b' + i].item<double>();
  CHECK(scores.at(0).num_tokens == 3);
  CHECK(scores[0].log_probability == Approx(expected).epsilon(1e-6));
  CHECK(scores[0].perplexity() == Approx(std::exp(-expected / 3)).epsilon(1e-6));
  expect_error(ExitCode::kBadInput, {"a text has one token"}, [&] {
    score_texts(*text.model, at::kCPU, {{"a", {}, false, "a text"}});
  });
  expect_error(ExitCode::kBadInput, {"a text has 9 tokens, and the model takes at most 8"}, [&] {
    score_texts(*text.model, at::kCPU, {{"123456789", {}, false, "a text"}});
  });
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
      [&] { continued(*recorded.model, continuing("abc")); });
  const FileModel digits(make_text_net(counting_table().narrow(0, 0, 98), 8));
  expect_error(ExitCode::kBadInput, {"the text has the byte 98 ('b'), and the model's vocabulary has 98 tokens"},
               [&] { continued(*digits.model, continuing("ab")); });
  expect_error(ExitCode::kBadInput, {"the text has the byte 195, and the model's vocabulary has 98 tokens"},
               [&] { continued(*digits.model, continuing("\u00e9")); });
  GenerateOptions ids{.prompts = {{{}, {5, 300}, true, "the prompt"}}};
  expect_error(ExitCode::kBadInput, {"the prompt has the id 300, and the model's vocabulary has 98 tokens"},
               [&] { continued(*digits.model, ids); });
  std::string given;
  expect_error(ExitCode::kBadInput, {"the text has the byte 98"}, [&] {
    generate_texts(*digits.model, at::kCPU, continuing("a", 2),
                   {.on_text = [&](size_t, const std::string& text) { given += text; }});
  });
  CHECK(given == "b");
}

TEST_CASE("what forward returns for data is written as it is", "[runtime][engine][forward_data]") {
  const test::TempDir dir;
  test::compile({"Net",
                 "def forward(self, a, b):\n    return {'sums': a + b * self.gain, 'mean': a.mean()}\n",
                 {{"gain", at::full({1}, 3.0)}},
                 {}})
      .save(dir / "net.pt");
  const at::Tensor a = at::arange(14, at::kFloat).reshape({7, 2}), b = a * 10;
  test::write_samples(dir / "data.safetensors", {{"b", b}, {"a", a}});
  const auto model = open_model({.path = dir / "net.pt", .predicts_tokens = false});
  const auto summary = write_forward_outputs(
      *model, at::kCPU, {.data = dir / "data.safetensors", .outputs = dir / "out.safetensors", .batch = 3});
  CHECK(summary.num_samples == 7);
  const SafetensorsFile written(dir / "out.safetensors");
  CHECK(at::equal(written.tensor(*written.find("sums")), a + b * 3));
  CHECK(at::allclose(written.tensor(*written.find("mean")),
                     at::stack({a.narrow(0, 0, 3).mean(), a.narrow(0, 3, 3).mean(), a.narrow(0, 6, 1).mean()})));
}

TEST_CASE("pictures for a model are normalized as those that it was trained on", "[runtime][engine][forward_data]") {
  class Trained final : public InferModel {
   public:
    explicit Trained(const std::string& path) : inner_(open_model({.path = path, .predicts_tokens = false})) {}
    model::Model& model() override { return inner_->model(); }
    const ModelSource& source() const override { return inner_->source(); }
    const std::string& file() const override { return inner_->file(); }
    const std::optional<HuggingFaceFacts>& hugging_face() const override { return inner_->hugging_face(); }
    int64_t weight_bytes() const override { return inner_->weight_bytes(); }
    std::string job_config() const override {
      return R"({"train_batch_size": 8, "data": {"normalize": {"mean": [0.5], "std": [0.25]}, "random_flip": true,
                 "random_crop": {"size": [2, 2], "padding": 0}}})";
    }

   private:
    std::unique_ptr<InferModel> inner_;
  };
  const test::TempDir dir;
  test::compile({"Net", "def forward(self, x):\n    return x * self.gain\n", {{"gain", at::ones({1})}}, {}})
      .save(dir / "net.pt");
  const at::Tensor pixels = at::arange(32, at::kByte).reshape({2, 1, 4, 4});
  test::write_samples(dir / "data.safetensors", {{"x", pixels}});
  Trained model(dir / "net.pt");
  write_forward_outputs(model, at::kCPU,
                        {.data = dir / "data.safetensors", .outputs = dir / "out.safetensors", .batch = 2});
  const SafetensorsFile written(dir / "out.safetensors");
  CHECK(at::equal(written.tensor(*written.find("output")),
                  (pixels.narrow(2, 1, 2).narrow(3, 1, 2).to(at::kFloat) / 255 - 0.5) / 0.25));
}

TEST_CASE("what has no model or no weights is refused with what is needed", "[runtime][engine][infer_model]") {
  const test::TempDir dir;
  dir.write("config.json", "{}");
  dir.write("model.safetensors", "");
  expect_error(ExitCode::kBadInput, {"has weights and no code to run", "MODEL.pt --weights"},
               [&] { open_model({.path = dir.path()}); });
  expect_error(ExitCode::kNoInput, {"absent"}, [&] { open_model({.path = dir / "absent"}); });
  expect_error(ExitCode::kUsage, {"--weights goes with a model file"},
               [&] { open_model({.path = dir / "absent", .weights = dir.path()}); });
  const at::Tensor one = at::ones({1});
  test::compile({"Net",
                 "def forward(self, ids):\n    return torch.embedding(self.table, ids)\n",
                 {{"table", one.expand({256, 256}).set_requires_grad(true)}},
                 {}})
      .save(dir / "empty.pt");
  expect_error(ExitCode::kBadInput, {"has no weights (it was exported with --empty)", "--weights DIR"},
               [&] { open_model({.path = dir / "empty.pt"}); });
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
  const auto loaded = open_model({.path = run.run_dir + "/checkpoints"});
  CHECK(loaded->model().facts.table.num_elements() == 256 * 256 + 256);
  // One step has counted one call (12 samples, 2 ranks: one micro batch each), which makes 'A' the most likely byte.
  auto options = continuing("x", 3);
  options.model.context = 4;
  CHECK(continued(*loaded, options) == "AAA");
  const test::TempDir files_of_parameters;
  const auto streamed =
      open_model({.path = run.run_dir + "/checkpoints", .nvme_path = std::string(files_of_parameters.path())});
  CHECK(continued(*streamed, options) == "AAA");
  std::filesystem::remove(run.run_dir + "/checkpoints/step_00000001/model.pt");
  expect_error(ExitCode::kBadInput, {"model.pt"}, [&] { open_model({.path = run.run_dir + "/checkpoints"}); });
}
