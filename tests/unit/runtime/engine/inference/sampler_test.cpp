// Draws of tokens beside closed probabilities, and prompts from files.
#include "runtime/engine/inference/sampler.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/engine/inference/infer_report.hpp"
#include "runtime/engine/inference/prompts.hpp"
#include "runtime/engine/inference/step_kernels.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::inference;
using test::expect_error;

namespace {

// Probabilities 0.4, 0.3, 0.2, 0.1 at temperature 1.
at::Tensor logits_of_four() {
  return at::tensor({0.1F, 0.4F, 0.2F, 0.3F}).log() + 3;
}

struct Case {
  const char* what;
  Sampling sampling;
  std::vector<double> probabilities;
};

}  // namespace

TEST_CASE("rows are chosen as one by one", "[runtime][engine][sampler]") {
  at::manual_seed(2);
  const std::vector<Sampling> rows{{.temperature = 0},
                                   {.temperature = 1},
                                   {.temperature = 0.3, .top_k = 5},
                                   {.temperature = 2, .top_p = 0.6},
                                   {.temperature = 1, .min_p = 0.2, .repetition_penalty = 1.7},
                                   {.temperature = 0, .repetition_penalty = 3},
                                   {.temperature = 1.5, .top_k = 9, .top_p = 0.7, .min_p = 0.05}};
  const auto count = std::ssize(rows);
  for (int round = 0; round < 30; ++round) {
    const at::Tensor logits = at::randn({count, 40}) * 3;
    if (round == 7) logits[2][3] = std::nan("");
    const at::Tensor uniform = at::rand({count, 1}, at::kDouble), seen = at::rand({count, 40}) < 0.3;
    RowSampling of_rows{.uniform = uniform, .seen = seen, .draws = true, .limits = true, .penalizes = true};
    const auto column = [&](auto of) {
      std::vector<double> values;
      for (const Sampling& row : rows) values.push_back(static_cast<double>(of(row)));
      return at::tensor(values, at::kDouble).unsqueeze(1);
    };
    of_rows.temperature = column([](const Sampling& row) { return row.temperature; });
    of_rows.top_k = column([](const Sampling& row) { return row.top_k; }).to(at::kLong);
    of_rows.top_p = column([](const Sampling& row) { return row.top_p; });
    of_rows.min_p = column([](const Sampling& row) { return row.min_p; });
    of_rows.repetition_penalty = column([](const Sampling& row) { return row.repetition_penalty; });
    const at::Tensor chosen = choose_tokens(logits, of_rows);
    for (int64_t i = 0; i < count; ++i) {
      std::vector<int64_t> history;
      for (int64_t token = 0; token < 40; ++token) {
        if (seen[i][token].item<bool>()) history.push_back(token);
      }
      const auto token = chosen[i].item<int64_t>();
      const auto alone = [&] {
        return choose_token(logits[i], rows[static_cast<size_t>(i)], history, uniform[i][0].item<double>());
      };
      if (round == 7 && i == 2) {
        CHECK(token == -1);
        expect_error(ExitCode::kBadInput, {"not finite"}, alone);
        expect_error(ExitCode::kBadInput, {"not finite"}, [&] { require_finite_choice(token); });
      } else {
        CHECK(token == alone());
      }
    }
  }
}

TEST_CASE("tokens are drawn with the probabilities that the limits leave", "[runtime][engine][sampler]") {
  const double squares = 0.01 + 0.16 + 0.04 + 0.09;
  const std::vector<Case> cases{
      {"all", {.temperature = 1}, {0.1, 0.4, 0.2, 0.3}},
      {"temperature", {.temperature = 0.5}, {0.01 / squares, 0.16 / squares, 0.04 / squares, 0.09 / squares}},
      {"top-k", {.temperature = 1, .top_k = 2}, {0, 4.0 / 7, 0, 3.0 / 7}},
      {"top-p", {.temperature = 1, .top_p = 0.75}, {0, 4.0 / 9, 2.0 / 9, 3.0 / 9}},
      {"min-p", {.temperature = 1, .min_p = 0.6}, {0, 4.0 / 7, 0, 3.0 / 7}},
      {"top-p within top-k", {.temperature = 1, .top_k = 3, .top_p = 0.4}, {0, 1, 0, 0}},
  };
  constexpr int kDraws = 4000;
  for (const auto& [what, sampling, expected] : cases) {
    INFO(what);
    const at::Tensor computed = probabilities(logits_of_four(), sampling);
    std::vector<int> counts(4);
    for (int i = 0; i < kDraws; ++i) counts[choose_token(logits_of_four(), sampling, {}, uniform_number(7, 1, i))] += 1;
    double chi_square = 0;
    for (size_t token = 0; token < 4; ++token) {
      CHECK(computed[static_cast<int64_t>(token)].item<double>() == Approx(expected[token]).margin(1e-6));
      if (expected[token] == 0) {
        CHECK(counts[token] == 0);
      } else {
        chi_square += std::pow(counts[token] - kDraws * expected[token], 2) / (kDraws * expected[token]);
      }
    }
    CHECK(chi_square < 16.27);  // three degrees of freedom, one time in a thousand
  }
}

TEST_CASE("repetitions become less likely, as transformers counts them", "[runtime][engine][sampler]") {
  const at::Tensor logits = at::tensor({2.0F, -2.0F, 1.9F});
  CHECK(choose_token(logits, {.temperature = 0}, {0, 1}, 0) == 0);
  CHECK(choose_token(logits, {.temperature = 0, .repetition_penalty = 1.1}, {0, 1}, 0) == 2);
  penalize_repetition(logits, {0, 0, 1, 99}, 2);
  CHECK(at::equal(logits, at::tensor({1.0F, -4.0F, 1.9F})));
}

TEST_CASE("prompts are lines, or JSON lines", "[runtime][engine][prompts]") {
  const test::TempDir dir;
  const auto plain = read_prompts(dir.write("a.txt", "one\r\n\n two \n"));
  REQUIRE(plain.size() == 2);
  CHECK((plain[0].text == "one" && plain[1].text == " two "));
  const auto lines = read_prompts(dir.write("b", "{\"prompt\": \"x\"}\n\"y\"\n{\"ids\": [3, 4]}\n"));
  REQUIRE(lines.size() == 3);
  CHECK((lines[0].text == "x" && lines[1].text == "y"));
  CHECK((lines[2].has_ids && lines[2].ids == std::vector<int64_t>{3, 4}));
  expect_error(ExitCode::kNoInput, {"absent"}, [&] { read_prompts(dir / "absent"); });
  expect_error(ExitCode::kBadInput, {"has none"}, [&] { read_prompts(dir.write("c", "\n\n")); });
  for (const char* empty : {"\"y\"\n\"\"\n", "\"y\"\n{\"ids\": []}", "\"y\"\n{\"prompt\": \"\"}"}) {
    expect_error(ExitCode::kBadInput, {"line 2 of", "the prompt is empty"},
                 [&] { read_prompts(dir.write("e", empty)); });
  }
  const auto answered = read_prompts(dir.write("f", R"({"prompt": "x", "ids": [3], "reference": "y"})"));
  CHECK((answered[0].text == "x" && answered[0].has_ids && answered[0].reference == "y"));
  expect_error(ExitCode::kBadInput, {"line 2 of", "neither \"prompt\" nor \"ids\""},
               [&] { read_prompts(dir.write("d.jsonl", "\"y\"\n{\"text_\": 3}\n")); });
  expect_error(ExitCode::kBadInput, {"line 1 of", "\"num_tokens\" is not a whole number of at least 1: 0"},
               [&] { read_prompts(dir.write("e.jsonl", "{\"ids\": [3], \"num_tokens\": 0}\n")); });
  CHECK(read_prompts(dir.write("f.jsonl", "{\"ids\": [3], \"num_tokens\": 7}\n"))[0].num_tokens == 7);
  expect_error(ExitCode::kUsage, {"--ids '1,x'"}, [] { parse_ids("1,x", "--ids"); });
  CHECK(parse_ids("1, 2 3", "--ids") == std::vector<int64_t>{1, 2, 3});
}

TEST_CASE("the likeliest token of a row is found in parts of the row", "[runtime][engine][inference]") {
  at::manual_seed(5);
  for (const int64_t classes : {128, 130, 64 * 50}) {
    const at::Tensor logits = at::randn({3, classes});
    RowSampling greedy;
    CHECK(at::equal(choose_tokens(logits, greedy), logits.argmax(-1)));
    logits[1][classes - 2] = NAN;
    const at::Tensor chosen = choose_tokens(logits, greedy);
    CHECK(chosen[1].item<int64_t>() == -1);
    CHECK(chosen[2].item<int64_t>() == logits[2].argmax().item<int64_t>());
  }
}

TEST_CASE("a percentile is one of the values", "[runtime][engine][infer_report]") {
  std::vector<InferReport::Seconds> values;
  for (int i = 100; i >= 1; --i) values.emplace_back(i);
  CHECK(percentile(values, 0.5) == 50);
  CHECK(percentile(values, 0.99) == 99);
  CHECK(percentile({InferReport::Seconds(3)}, 0.9) == 3);
}

TEST_CASE("a report has the share of the memory's rate that steps read at", "[runtime][engine][infer_report]") {
  InferReport report{.num_prompts = 1, .prompt_tokens = 3, .new_tokens = 3};
  for (const double seconds : {0.5, 0.25, 0.25}) report.decode_steps.emplace_back(seconds);
  report.read_bytes = int64_t{3} << 30;
  CHECK(as_json(report)["decode_read"]["share"].is_null());
  CHECK(as_text(report).find("a step reads") == std::string::npos);
  report.memory_rate = 5.0 * (int64_t{1} << 30);
  CHECK(as_json(report)["decode_read"]["bytes"] == 1 << 30);
  CHECK(as_json(report)["decode_read"]["share"] == 0.8);  // 4 GiB/s of 5
  CHECK(as_text(report).find("a step reads 1.00 GiB: 80% of the 5.00 GiB/s") != std::string::npos);
}

TEST_CASE("the kernels of steps are summed by name, with the rate at which steps read",
          "[runtime][engine][infer_report]") {
  std::vector<DeviceSpan> spans;
  for (int step = 0; step < 2; ++step) {
    const double begin = 100.0 * step;
    spans.push_back({"void (anonymous namespace)::rows<4>(Rows)", DeviceWork::kCompute, 7, begin, begin + 60});
    spans.push_back({"norm", DeviceWork::kCompute, 7, begin + 70, begin + 80});
    spans.push_back({"void (anonymous namespace)::rows<4>(Rows)", DeviceWork::kCompute, 7, begin + 80, begin + 100});
  }
  const std::string table = kernel_table(spans, 2, 200'000'000);
  CHECK(table.starts_with(
      "kernels of a step, of 2 recorded: 100.0 us each, 90.0 us in 3.0 kernels; reads 0.200 GB, 2.00 TB/s\n"));
  CHECK(table.find("    80.0  88.9 %      2.0    40.00  rows<4>\n    10.0  11.1 %      1.0    10.00  norm\n") !=
        std::string::npos);
  CHECK(table.find("   10.00    10.00  norm\n    0.00    20.00  rows<4>\n    0.00    60.00  rows<4>\n") !=
        std::string::npos);
  CHECK(kernel_table(spans, 2, 0).find("reads") == std::string::npos);
}
