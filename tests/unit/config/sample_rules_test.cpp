// train.samples: the forms of its prompts, and what it refuses.
#include <catch2/catch.hpp>

#include "load_support.hpp"

using namespace dslaunch::config;
using Catch::Matchers::Contains;

namespace {

// With evaluations during the run; `samples`: the keys of the section.
std::string sampled(const std::string& samples, const std::string& more = "", const std::string& train = "") {
  return "{data: {eval: \"e.npy\"}, train: {eval_interval: 5, samples: {" + samples + "}" + train + "}" + more + "}";
}

struct Slip {
  std::string text, answer;
};

}  // namespace

TEST_CASE("samples have prompts of several forms", "[config][sample_rules]") {
  CHECK_FALSE(good("{}").train.samples);
  const auto samples =
      good(sampled("prompts: [\"a\", {prompt: \"b\", reference: \"c\"}, {ids: [1, 2]}], stop: \".\", seed: 7"))
          .train.samples;
  REQUIRE(samples);
  CHECK(samples->prompts == std::vector<SamplePrompt>{{"a", {}, {}}, {"b", {}, "c"}, {"", {1, 2}, {}}});
  CHECK(samples->num_tokens == 64);
  CHECK(samples->temperature == 0);
  CHECK(samples->stop == std::vector<std::string>{"."});
  CHECK(samples->seed == 7);
  const auto from_file = good(sampled("prompts: \"p.jsonl\", num_tokens: 9")).train.samples;
  REQUIRE(from_file);
  CHECK(from_file->prompts_file == "p.jsonl");
  CHECK(from_file->prompts.empty());
  CHECK(from_file->num_tokens == 9);
  CHECK(has_note(load("{train: {samples: {prompts: [\"a\"]}}}"), "without 'data.eval' there is one with --eval_only"));
}

TEST_CASE("runs decide by values of samples", "[config][sample_rules]") {
  const auto exact =
      good(sampled("prompts: [{prompt: \"b\", reference: \"c\"}]", "", ", early_stopping: {metric: \"exact_match\"}"));
  CHECK(exact.train.early_stopping->metric == "eval_exact_match");
  CHECK(exact.train.early_stopping->mode == MetricMode::kMax);
  const auto bleu = good(sampled("prompts: \"p\", metric_command: \"bleu\"",
                                 ", checkpoint: {keep_best: {metric: \"bleu\", mode: \"max\"}}"));
  CHECK(bleu.checkpoint.keep_best->metric == "eval_bleu");
}

TEST_CASE("a slip in samples is refused with the way out", "[config][sample_rules]") {
  const auto slip = GENERATE(values<Slip>({
      {sampled("num_tokens: 3"), "'train.samples' needs 'train.samples.prompts': texts to continue, or a file"},
      {sampled("promts: [\"a\"]"), "unknown key 'promts' in 'train.samples' (did you mean 'prompts'?)"},
      {sampled("prompts: []"), "'train.samples' needs 'train.samples.prompts'"},
      {sampled("prompts: 3"), "must be a list of texts and of {\"prompt\": …, \"reference\": …}, or a file, not 3"},
      {sampled("prompts: [3]"), "or a file, not 3"},
      {sampled("prompts: [\"\"]"), "'train.samples.prompts' has an empty text"},
      {sampled("prompts: [{prompt: \"a\", refrence: \"b\"}]"),
       "unknown key 'refrence' in an entry of 'train.samples.prompts' (did you mean 'reference'?)"},
      {sampled("prompts: [{reference: \"b\"}]"), "needs a prompt or ids, and has neither"},
      {sampled("prompts: [{prompt: \"a\", ids: [1]}]"), "needs a prompt or ids, and has both"},
      {sampled("prompts: [{ids: [-1]}]"),
       "'ids' of an entry of 'train.samples.prompts' must be a list of ids of tokens"},
      {sampled("prompts: [{prompt: 3}]"), "'prompt' of an entry of 'train.samples.prompts' must be a text, not 3"},
      {sampled("prompts: [\"a\"], num_tokens: 0"), "'train.samples.num_tokens' must be at least 1, not 0"},
      {sampled("prompts: [\"a\"], num_token: 3"), "did you mean 'num_tokens'?"},
      {sampled("prompts: [\"a\"], max_new_tokens: 3"), "train.samples.num_tokens"},
      {sampled("prompts: [\"a\"], temperature: -1"), "'train.samples.temperature' must be at least 0, not -1"},
      {sampled("prompts: [\"a\"]", "", ", early_stopping: {metric: \"exact_match\"}"),
       "must be a value of the evaluations, eval_loss, not 'exact_match'"},
      {sampled("prompts: \"p\", metric_command: \"bleu\"", "", ", early_stopping: {metric: \"bleu\"}"),
       "'train.early_stopping.mode' is needed for eval_bleu"},
      {sampled("prompts: \"p\"", "", ", metrics: [{name: \"exact_match\", module: \"m.pt\"}]"),
       "'train.metrics' has two values named 'eval_exact_match'"},
  }));
  INFO(slip.text);
  CHECK_THAT(only_line(slip.text), Contains(slip.answer));
}

TEST_CASE("samples and a model split over ranks exclude each other", "[config][sample_rules]") {
  CHECK_THAT(only_line(sampled("prompts: [\"a\"]", ", pipeline: {stages: 2}"), 2),
             Contains("'train.samples' writes texts on one rank, and here the model is split over 2 stages of a "
                      "pipeline: leave 'train.samples' out, and use dslaunch infer on the run's checkpoints"));
  CHECK_THAT(only_line(sampled("prompts: [\"a\"]", ", tensor_parallel: {size: 2}"), 2),
             Contains("split over 2 tensor ranks"));
}
