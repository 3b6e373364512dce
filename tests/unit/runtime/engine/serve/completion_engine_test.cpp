// Requests that a model of bytes answers: side by side, with scores, in streams, and when one of them cannot be
// answered.
#include "runtime/engine/serve/completion_engine.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "runtime/engine/inference/generate_texts.hpp"
#include "runtime/state/model_metadata.hpp"
#include "support/recording_exchange.hpp"
#include "support/script_models.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime::engine;
using namespace dslaunch::runtime::engine::serve;
using nlohmann::json;
using test::RecordingExchange;

namespace {

constexpr int64_t kPositions = 24;

// Attention over bytes, with kept keys and values. `check`: a statement at the begin of forward.
torch::jit::Module make_net(const std::string& check = "pass", int64_t positions = kPositions) {
  return test::compile(
      {"MixingNet",
       fmt::format(R"(
    def forward(self, ids, labels):
        {}
        n = ids.size(1)
        x = torch.embedding(self.table, ids) + torch.embedding(self.positions, torch.arange(n))
        q = x.unsqueeze(1)
        y = torch.scaled_dot_product_attention(q, q, q, is_causal=True)
        logits = torch.matmul(x + y.squeeze(1), self.table.t())
        return torch.cross_entropy_loss(logits.view(-1, 256), labels.view(-1))
  )",
                   check),
       {{"table", test::random_weight({256, 16}, 4)}, {"positions", test::random_weight({positions, 16}, 5)}},
       {}});
}

struct Net {
  test::TempDir folder;
  std::unique_ptr<inference::InferModel> model;

  explicit Net(const torch::jit::Module& module = make_net()) {
    module.save(folder / "net.pt", {{runtime::kModelMetadataName, R"({"format": 1})"}});
    model = inference::open_model({.path = folder / "net.pt"});
  }

  // All at once.
  std::vector<std::shared_ptr<RecordingExchange>> ask(const std::vector<json>& requests,
                                                      const inference::TextModelOptions& options = {},
                                                      EngineOptions engine = {}) {
    engine.model_name = "net";
    CompletionQueue queue(100);
    inference::TextModel texts(*model, at::kCPU, options, /*shows_text=*/true);
    CompletionEngine own(texts, queue, metrics, engine);
    std::vector<std::shared_ptr<RecordingExchange>> out;
    for (const json& request : requests) {
      out.push_back(std::make_shared<RecordingExchange>());
      REQUIRE(queue.push({parse_completion(request.dump(), "net"), out.back()}) == CompletionQueue::Outcome::kTaken);
    }
    own.run([] { return true; }, [] {});
    for (const auto& one : out) CHECK(one->answer.has_value());
    return out;
  }

  std::string text_of(const std::string& prompt, int64_t num_tokens, const inference::Sampling& sampling,
                      uint64_t seed) {
    std::string out;
    inference::generate_texts(
        *model, at::kCPU,
        {.prompts = {{prompt, {}, false, "a"}}, .num_tokens = num_tokens, .sampling = sampling, .seed = seed},
        {.on_finished = [&](size_t, const inference::WrittenText& text) { out = text.text; }});
    return out;
  }

  at::Tensor log_softmax(const std::string& text) {
    const at::NoGradGuard no_grad;
    inference::TokenModel tokens(model->model(), at::kCPU);
    return at::log_softmax(tokens.logits(at::tensor(inference::byte_codec()->encode(text)).unsqueeze(0))[0], -1);
  }

  ServerMetrics metrics;
};

}  // namespace

TEST_CASE("requests that are answered side by side get the texts of infer", "[runtime][engine][serve]") {
  Net net;
  std::vector<json> requests;
  for (int i = 0; i < 70; ++i) {
    requests.push_back({{"prompt", std::string(static_cast<size_t>(1 + i % 7), static_cast<char>('a' + i % 26))},
                        {"max_tokens", 3 + i % 9},
                        {"temperature", i % 3 == 0 ? 0.0 : 0.7},
                        {"seed", i}});
  }
  const auto answers = net.ask(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const json& request = requests[i];
    const json answer = answers[i]->document();
    CHECK(answer["choices"][0]["text"] == net.text_of(request["prompt"], request["max_tokens"],
                                                      {.temperature = request["temperature"]},
                                                      request["seed"].get<uint64_t>()));
    CHECK(answer["usage"]["completion_tokens"] == request["max_tokens"]);
    CHECK(answer["usage"]["prompt_tokens"] == request["prompt"].get<std::string>().size());
    CHECK(answer["choices"][0]["finish_reason"] == "length");
  }
  const std::string metrics = net.metrics.text("net", 0, {});
  CHECK_THAT(metrics, Catch::Contains("dslaunch_completion_requests_total{status=\"200\"} 70\n"));
  CHECK_THAT(metrics, Catch::Contains("dslaunch_request_seconds_count 70\n"));
}

TEST_CASE("log-probabilities are those of the model's logits, of prompts too", "[runtime][engine][serve]") {
  Net net;
  const std::string prompt = "the prompt";
  const auto answers =
      net.ask({{{"prompt", prompt}, {"max_tokens", 4}, {"temperature", 0}, {"logprobs", 2}, {"echo", true}},
               {{"prompt", prompt}, {"max_tokens", 0}, {"logprobs", 1}, {"echo", true}},
               {{"prompt", prompt}, {"max_tokens", 4}, {"temperature", 0}, {"logprobs", 2}}});
  const json full = answers[0]->document()["choices"][0], prompts = answers[1]->document()["choices"][0];
  const json plain = answers[2]->document()["choices"][0];
  const auto ids = full["token_ids"].get<std::vector<int64_t>>();
  CHECK(ids == plain["token_ids"]);
  std::vector<int64_t> all = inference::byte_codec()->encode(prompt);
  all.insert(all.end(), ids.begin(), ids.end());
  std::string text;
  for (const int64_t id : all) text += static_cast<char>(id);
  const at::Tensor expected = net.log_softmax(text);
  const json& scores = full["logprobs"];
  REQUIRE(scores["token_logprobs"].size() == all.size());
  CHECK(scores["token_logprobs"][0].is_null());
  CHECK(scores["top_logprobs"][0].is_null());
  for (size_t i = 1; i < all.size(); ++i) {
    const at::Tensor row = expected[static_cast<int64_t>(i) - 1];
    CHECK(scores["token_logprobs"][i].get<double>() == Approx(row[all[i]].item<double>()).margin(1e-4));
    double best = -1e9;
    for (const auto& [name, value] : scores["top_logprobs"][i].items()) best = std::max(best, value.get<double>());
    CHECK(best == Approx(row.max().item<double>()).margin(1e-4));
    CHECK(scores["top_logprobs"][i].size() <= 3);
    if (i < prompt.size()) {
      CHECK(scores["tokens"][i] == prompt.substr(i, 1));
      CHECK(scores["text_offset"][i] == i);
      CHECK(scores["token_logprobs"][i] == prompts["logprobs"]["token_logprobs"][i]);
    } else {
      CHECK(scores["token_logprobs"][i] == plain["logprobs"]["token_logprobs"][i - prompt.size()]);
    }
  }
  CHECK(full["text"] == prompt + plain["text"].get<std::string>());
  CHECK(prompts["text"] == prompt);
  CHECK(prompts["logprobs"]["tokens"].size() == prompt.size());
}

TEST_CASE("prompts that are scored in one pass get the scores that they have alone", "[runtime][engine][serve]") {
  Net net;
  const std::vector<std::string> prompts{"the prompt", "another one", "x", "third one", "ab", "longer than the others",
                                         "abc"};
  std::vector<json> requests{{{"prompt", prompts}, {"max_tokens", 0}, {"logprobs", 1}, {"echo", true}}};
  for (const auto& prompt : prompts) {
    requests.push_back({{"prompt", prompt}, {"max_tokens", 0}, {"logprobs", 3}, {"echo", true}});
  }
  for (const bool uses_cache : {true, false}) {
    const auto answers = net.ask(requests, {.uses_cache = uses_cache});
    for (size_t i = 0; i < prompts.size(); ++i) {
      const auto ids = inference::byte_codec()->encode(prompts[i]);
      const at::Tensor expected = net.log_softmax(prompts[i]);
      for (const json& choice : {answers[0]->document()["choices"][i], answers[i + 1]->document()["choices"][0]}) {
        const json& found = choice["logprobs"]["token_logprobs"];
        REQUIRE(found.size() == ids.size());
        for (size_t j = 1; j < ids.size(); ++j) {
          const double own = expected[static_cast<int64_t>(j) - 1][ids[j]].item<double>();
          CHECK(found[j].get<double>() == Approx(own).margin(1e-5));
        }
      }
    }
  }
}

TEST_CASE("the parts of a stream are the reply", "[runtime][engine][serve]") {
  Net net;
  const json request{{"prompt", {"ab", "xyz"}}, {"max_tokens", 12}, {"temperature", 1.0}, {"seed", 3}, {"n", 2},
                     {"logprobs", 1},           {"echo", true}};
  json streamed = request;
  streamed["stream"] = true;
  streamed["stream_options"] = {{"include_usage", true}};
  const auto answers = net.ask({request, streamed});
  const json whole = answers[0]->document();
  std::vector<json> choices(
      4, {{"text", ""}, {"token_ids", json::array()}, {"tokens", json::array()}, {"offsets", json::array()}});
  const auto events = answers[1]->events();
  CHECK(events.back()["usage"] == whole["usage"]);
  for (const json& event : events) {
    for (const json& part : event["choices"]) {
      json& own = choices[part["index"]];
      own["text"] = own["text"].get<std::string>() + part["text"].get<std::string>();
      for (const json& id : part["token_ids"]) own["token_ids"].push_back(id);
      for (const json& token : part["logprobs"]["tokens"]) own["tokens"].push_back(token);
      for (const json& offset : part["logprobs"]["text_offset"]) own["offsets"].push_back(offset);
      own["finish_reason"] = part["finish_reason"];
    }
  }
  for (size_t i = 0; i < 4; ++i) {
    const json& wanted = whole["choices"][i];
    CHECK(choices[i]["text"] == wanted["text"]);
    CHECK(choices[i]["token_ids"] == wanted["token_ids"]);
    CHECK(choices[i]["tokens"] == wanted["logprobs"]["tokens"]);
    CHECK(choices[i]["offsets"] == wanted["logprobs"]["text_offset"]);
    CHECK(choices[i]["finish_reason"] == "length");
  }
  CHECK(whole["choices"][0]["token_ids"] != whole["choices"][1]["token_ids"]);
}

TEST_CASE("texts end at stops, at tokens that end them, and when no tokens are asked for", "[runtime][engine][serve]") {
  Net net;
  const json request{{"prompt", "a"}, {"max_tokens", 20}, {"temperature", 1.0}, {"seed", 1}};
  const json whole = net.ask({request})[0]->document()["choices"][0];
  const auto ids = whole["token_ids"].get<std::vector<int64_t>>();
  const auto letter = std::find_if(ids.begin() + 1, ids.end(), [](int64_t id) { return id > ' ' && id < 127; });
  REQUIRE(letter != ids.end());
  json stops = request, ends = request, none = request;
  stops["stop"] = std::string{static_cast<char>(*letter)};
  ends["stop_token_ids"] = {*letter};
  none["max_tokens"] = 0;
  const auto answers = net.ask({stops, ends, none});
  for (size_t i = 0; i < 2; ++i) {
    const json choice = answers[i]->document()["choices"][0];
    CHECK(choice["finish_reason"] == "stop");
    CHECK(choice["token_ids"].get<std::vector<int64_t>>() == std::vector<int64_t>(ids.begin(), letter + 1));
    CHECK(whole["text"].get<std::string>().starts_with(choice["text"].get<std::string>()));
  }
  CHECK(answers[2]->document()["choices"][0]["text"] == "");
}

TEST_CASE("a prompt that the model does not take is refused, and the others are answered", "[runtime][engine][serve]") {
  const std::string longer(kPositions + 5, 'a');
  for (const char* check : {"pass", "assert ids.size(1) <= 20"}) {
    INFO(check);
    Net net(make_net(check));
    const auto answers = net.ask({{{"prompt", "ab"}, {"max_tokens", 5}, {"temperature", 0}},
                                  {{"prompt", longer}, {"max_tokens", 1}},
                                  {{"prompt", longer}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 1}},
                                  {{"prompt", {1, 2, 256}}},
                                  {{"prompt", ""}},
                                  {{"prompt", "b"}, {"max_tokens", 100'000}},
                                  {{"prompt", "c"}, {"max_tokens", 5}, {"temperature", 0}}});
    for (const size_t good : {size_t{0}, size_t{6}}) {
      CHECK(answers[good]->document()["choices"][0]["token_ids"].size() == 5);
    }
    for (size_t bad = 1; bad < 6; ++bad) {
      INFO(bad);
      CHECK(answers[bad]->answer->status == 400);
      CHECK(answers[bad]->document()["error"]["param"] == "prompt");
    }
    CHECK_THAT(answers[3]->document()["error"]["message"].get<std::string>(), Catch::Contains("the id 256"));
  }
}

TEST_CASE("an answer that would be too large is refused before it is computed", "[runtime][engine][serve]") {
  Net net(make_net("pass", 200));
  json request{{"prompt", json::array()}, {"n", 128}, {"max_tokens", 0}, {"echo", true}};
  for (int i = 0; i < 16; ++i) request["prompt"].push_back(std::string(150, 'a'));
  json scored = request;
  scored["logprobs"] = 20;
  const auto answers = net.ask({request, scored});
  CHECK(answers[0]->document()["choices"].size() == 2048);
  CHECK_THAT(answers[1]->document()["error"]["message"].get<std::string>(),
             Catch::Contains("2048 texts may have 307200 tokens in all"));
}

TEST_CASE("texts that the cache has no room for wait for others", "[runtime][engine][serve]") {
  Net net;
  std::vector<json> requests;
  for (int i = 0; i < 12; ++i) {
    requests.push_back({{"prompt", std::string(1, static_cast<char>('a' + i))},
                        {"max_tokens", 10},
                        {"temperature", 0.8},
                        {"seed", i}});
  }
  constexpr int64_t kPageBytes = 64 * 2 * 16 * 4;  // of 64 tokens: a key and a value of 16 numbers
  const auto all = net.ask(requests), few = net.ask(requests, {.cache_bytes = 3 * kPageBytes});
  for (size_t i = 0; i < requests.size(); ++i) CHECK(few[i]->document()["choices"] == all[i]->document()["choices"]);
  Net longer(make_net("pass", 200));
  const auto two =
      longer.ask({{{"prompt", "a"}, {"max_tokens", 150}}, {{"prompt", "b"}, {"max_tokens", 150}}, requests[0]},
                 {.cache_bytes = 2 * kPageBytes});
  for (size_t i = 0; i < 2; ++i) {
    CHECK(two[i]->answer->status == 400);
    CHECK_THAT(two[i]->answer->body, Catch::Contains("the cache of keys and values needs"));
  }
  CHECK(two[2]->answer->status == 200);
}

TEST_CASE("a pass that fails answers the requests in it, and later ones are answered", "[runtime][engine][serve]") {
  Net net(make_net("assert int(ids.max()) < 250"));
  inference::TextModel texts(*net.model, at::kCPU, {}, /*shows_text=*/true);
  CompletionQueue queue(2);
  CompletionEngine engine(texts, queue, net.metrics, {.model_name = "net"});
  auto failing = std::make_shared<RecordingExchange>(), later = std::make_shared<RecordingExchange>();
  queue.push({parse_completion(R"({"prompt": [251]})", "net"), failing});
  bool has_asked = false;
  const auto ask_later = [&] {
    if (failing->answer && !std::exchange(has_asked, true)) {
      queue.push({parse_completion(R"({"prompt": "a", "max_tokens": 2, "temperature": 0})", "net"), later});
    }
    return later->answer.has_value();
  };
  engine.run(ask_later, [] {});
  CHECK(failing->answer->status == 500);
  CHECK(failing->document()["error"]["type"] == "server_error");
  CHECK(later->document()["choices"][0]["token_ids"].size() == 2);
}

TEST_CASE("clients that do not wait are dropped, and an end that takes too long answers 503",
          "[runtime][engine][serve]") {
  Net net;
  inference::TextModel texts(*net.model, at::kCPU, {}, /*shows_text=*/true);
  CompletionQueue queue(2);
  ServerMetrics metrics;
  const auto request = parse_completion(R"({"prompt": "a", "max_tokens": 20})", "net");
  auto gone = std::make_shared<RecordingExchange>(), waiting = std::make_shared<RecordingExchange>();
  CHECK(queue.push({request, gone}) == CompletionQueue::Outcome::kTaken);
  CHECK(queue.push({request, waiting}) == CompletionQueue::Outcome::kTaken);
  CHECK(queue.push({request, waiting}) == CompletionQueue::Outcome::kFull);
  gone->gone = true;
  auto next = std::make_shared<RecordingExchange>();
  CHECK(queue.push({request, next}) == CompletionQueue::Outcome::kTaken);  // the place of the one that is gone
  CompletionEngine engine(texts, queue, metrics, {.model_name = "net", .drain_timeout = std::chrono::milliseconds(0)});
  engine.run([] { return true; }, [] {});
  CHECK(waiting->answer->status == 503);
  CHECK(next->answer->status == 503);
  CHECK_FALSE(gone->answer.has_value());
  CHECK(queue.push({request, waiting}) == CompletionQueue::Outcome::kClosed);
}
