// Bodies of requests: what they mean, and what is refused with which field.
#include "runtime/engine/serve/completion_request.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "base/format.hpp"
#include "runtime/engine/serve/api_error.hpp"

using namespace dslaunch::runtime::engine::serve;
using nlohmann::json;

namespace {

ApiError refused(const std::string& body) {
  try {
    parse_completion(body, "net");
  } catch (const ApiError& error) {
    return error;
  }
  FAIL("accepted: " << body.substr(0, 100));
  throw 0;
}

}  // namespace

TEST_CASE("prompts are a text, texts, tokens or lists of tokens", "[runtime][engine][serve]") {
  CHECK(parse_completion(R"({"prompt": "a"})", "net").prompts[0].text == "a");
  const auto texts = parse_completion(R"({"prompt": ["a", "b"], "model": "net"})", "net").prompts;
  CHECK((texts.size() == 2 && texts[1].text == "b" && texts[1].where == "prompt 2"));
  CHECK(parse_completion(R"({"prompt": [1, 2]})", "net").prompts[0].ids == std::vector<int64_t>{1, 2});
  const auto lists = parse_completion(R"({"prompt": [[1, 2], [3]]})", "net").prompts;
  CHECK((lists.size() == 2 && lists[1].has_ids && lists[1].ids == std::vector<int64_t>{3}));
}

TEST_CASE("fields have OpenAI's defaults and meanings", "[runtime][engine][serve]") {
  const auto plain = parse_completion(R"({"prompt": "a", "stop": null, "logprobs": null})", "net");
  CHECK((plain.num_choices == 1 && !plain.max_tokens && plain.sampling.temperature == 1 && !plain.seed));
  CHECK((!plain.num_logprobs && !plain.echoes && !plain.streams && plain.stops.empty()));
  const auto full = parse_completion(R"({"prompt": "a", "max_tokens": 0, "temperature": 0, "top_p": 0.5, "top_k": -1,
    "min_p": 0.1, "repetition_penalty": 1.5, "seed": -1, "stop": ["x", ""], "stop_token_ids": [7], "n": 3, "best_of": 3,
    "echo": true, "logprobs": 0, "stream": true, "stream_options": {"include_usage": true}, "user": "u",
    "presence_penalty": 0, "logit_bias": {}})",
                                     "net");
  CHECK((full.num_choices == 3 && full.max_tokens == 0 && full.sampling.temperature == 0 && full.sampling.top_k == 0));
  CHECK((full.seed == ~uint64_t{0} && full.stops == std::vector<std::string>{"x"} && full.stop_ids.count(7) == 1));
  CHECK((full.echoes && full.num_logprobs == 0 && full.streams && full.includes_usage));
  CHECK(parse_completion(R"({"prompt": "a", "stop": "x"})", "net").stops == std::vector<std::string>{"x"});
}

TEST_CASE("what a field may not be is refused by its name", "[runtime][engine][serve]") {
  struct Case {
    const char* fields;
    const char* param;
    const char* message;
  };
  for (const auto& [fields, param, message] : std::vector<Case>{
           {R"("prompt": 3)", "prompt", "expected a text"},
           {R"("prompt": [])", "prompt", "expected a text"},
           {R"("prompt": ["a", [1]])", "prompt", "mixed"},
           {R"("prompt": [1, "a"])", "prompt", "whole numbers"},
           {R"("prompt": [[1], [2.5]])", "prompt", "whole numbers"},
           {R"("prompt": [{}])", "prompt", "expected a text"},
           {R"("max_tokens": 4)", "prompt", "it is missing"},
           {R"("prompt": "a", "max_tokens": -1)", "max_tokens", "at least 0"},
           {R"("prompt": "a", "max_tokens": 1.5)", "max_tokens", "whole number"},
           {R"("prompt": "a", "max_tokens": 18446744073709551615)", "max_tokens", "whole number"},
           {R"("prompt": "a", "temperature": "hot")", "temperature", "expected a number"},
           {R"("prompt": "a", "temperature": -0.1)", "temperature", "from 0"},
           {R"("prompt": "a", "top_p": 1.1)", "top_p", "from 0 to 1"},
           {R"("prompt": "a", "n": 0)", "n", "from 1 to 128"},
           {R"("prompt": "a", "n": 129)", "n", "from 1 to 128"},
           {R"("prompt": "a", "best_of": 2)", "best_of", "not supported"},
           {R"("prompt": "a", "suffix": "b")", "suffix", "not supported"},
           {R"("prompt": "a", "frequency_penalty": 1)", "frequency_penalty", "'repetition_penalty' is"},
           {R"("prompt": "a", "logit_bias": {"5": 1})", "logit_bias", "not supported"},
           {R"("prompt": "a", "stop": [1])", "stop", "list of texts"},
           {R"("prompt": "a", "stop_token_ids": 1)", "stop_token_ids", "list of tokens"},
           {R"("prompt": "a", "echo": 1)", "echo", "true or false"},
           {R"("prompt": "a", "logprobs": true)", "logprobs", "from 0 to 20"},
           {R"("prompt": "a", "logprobs": 21)", "logprobs", "from 0 to 20"},
           {R"("prompt": "a", "stream_options": {})", "stream_options", "goes with 'stream'"},
           {R"("prompt": "a", "max_token": 1)", "max_token", "did you mean 'max_tokens'"},
       }) {
    INFO(fields);
    const ApiError error = refused(fmt::format("{{{}}}", fields));
    CHECK(error.status() == 400);
    const json document = json::parse(error.document())["error"];
    CHECK(document["param"] == param);
    CHECK(document["type"] == "invalid_request_error");
    CHECK_THAT(document["message"].get<std::string>(), Catch::Contains(message));
  }
  std::string prompts = "\"a\"";
  for (int i = 0; i < 2048; ++i) prompts += ",\"a\"";
  CHECK(refused(fmt::format(R"({{"prompt": [{}]}})", prompts)).status() == 400);
}

TEST_CASE("bodies that are not an object, nest deeply or ask another model are refused", "[runtime][engine][serve]") {
  for (const std::string& body : {std::string(), std::string("{"), std::string("[]"), std::string("\"\xff\""),
                                  std::string(100'000, '['), R"({"prompt": [[[[1]]]]})" + std::string()}) {
    CHECK(refused(body).status() == 400);
  }
  const ApiError other = refused(R"({"prompt": "a", "model": "gpt-4"})");
  CHECK(other.status() == 404);
  CHECK_THAT(other.what(), Catch::Contains("'gpt-4' is not here: this server has 'net'"));
  CHECK(json::parse(other.document())["error"]["code"] == "model_not_found");
}
