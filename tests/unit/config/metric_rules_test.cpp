// train.metrics, train.early_stopping and checkpoint.keep_best: their forms, and what they refuse.
#include <catch2/catch.hpp>

#include "load_support.hpp"

using namespace dslaunch::config;
using Catch::Matchers::Contains;

namespace {

using Metrics = std::vector<EvaluationMetric>;

// With evaluations during the run, and more keys of `train`.
std::string evaluated(const std::string& train, const std::string& more = "") {
  return "{data: {eval: \"e.npy\"}, train: {eval_interval: 5, " + train + "}" + more + "}";
}

struct Slip {
  std::string text, answer;
};

}  // namespace

TEST_CASE("metrics are named one by one, or by file", "[config][metric_rules]") {
  CHECK(good("{}").train.metrics.empty());
  CHECK(good("{train: {metrics: []}}").train.metrics.empty());
  CHECK(good("{train: {metrics: \"accuracy\"}}").train.metrics == Metrics{{"accuracy", ""}});
  CHECK(good("{train: {metrics: [\"perplexity\", {name: \"f1\", module: \"m.pt\"}, \"accuracy\"]}}").train.metrics ==
        Metrics{{"perplexity", ""}, {"f1", "m.pt"}, {"accuracy", ""}});
  const Metrics both{{"perplexity", ""}, {"accuracy", ""}};
  for (const char* words : {"perplexity,accuracy", "[perplexity, accuracy]", "[\"perplexity\", \"accuracy\"]"}) {
    INFO(words);
    CHECK(load("{}", 1, {{"train.metrics", words}}).config.train.metrics == both);
  }
  CHECK(has_note(load("{train: {metrics: [\"accuracy\"]}}"), "without 'data.eval' there is one with --eval_only only"));
  CHECK_FALSE(has_note(load(evaluated("metrics: [\"accuracy\"]")), "train.metrics"));
}

TEST_CASE("early stopping and the best checkpoint go by a value of the evaluations", "[config][metric_rules]") {
  CHECK_FALSE(good("{}").train.early_stopping);
  CHECK_FALSE(good("{}").checkpoint.keep_best);
  CHECK_FALSE(good(evaluated("early_stopping: null", ", checkpoint: {keep_best: null}")).train.early_stopping);
  const auto by_default = good(evaluated("early_stopping: {}", ", checkpoint: {keep_best: {}}"));
  REQUIRE((by_default.train.early_stopping && by_default.checkpoint.keep_best));
  CHECK(by_default.train.early_stopping->metric == "eval_loss");
  CHECK(by_default.train.early_stopping->max_without_better == 3);
  CHECK(by_default.train.early_stopping->min_delta == 0);
  CHECK(by_default.train.early_stopping->mode == MetricMode::kMin);
  CHECK(by_default.checkpoint.keep_best->metric == "eval_loss");
  CHECK(by_default.checkpoint.keep_best->mode == MetricMode::kMin);
  CHECK(by_default.checkpoint.keep_best->count == 1);
  // With or without eval_, as Trainer's metric_for_best_model.
  for (const char* name : {"accuracy", "eval_accuracy"}) {
    const auto config = good(evaluated(
        "metrics: [\"accuracy\"], early_stopping: {metric: \"" + std::string(name) + "\", patience: 1, min_delta: 0.5}",
        ", checkpoint: {keep_best: {metric: \"" + std::string(name) + "\", count: 2}}"));
    CHECK(config.train.early_stopping->metric == "eval_accuracy");
    CHECK(config.train.early_stopping->mode == MetricMode::kMax);
    CHECK(config.train.early_stopping->max_without_better == 1);
    CHECK(config.train.early_stopping->min_delta == 0.5);
    CHECK(config.checkpoint.keep_best->metric == "eval_accuracy");
    CHECK(config.checkpoint.keep_best->mode == MetricMode::kMax);
    CHECK(config.checkpoint.keep_best->count == 2);
  }
  const auto own =
      good(evaluated("metrics: [{name: \"f1\", module: \"m.pt\"}, \"perplexity\"], early_stopping: {metric: "
                     "\"f1\", mode: \"max\"}",
                     ", checkpoint: {keep_best: {metric: \"perplexity\"}}"));
  CHECK(own.train.early_stopping->mode == MetricMode::kMax);
  CHECK(own.checkpoint.keep_best->mode == MetricMode::kMin);
}

TEST_CASE("a number is short for how many best checkpoints are kept", "[config][metric_rules]") {
  CHECK(good(evaluated("seed: 1", ", checkpoint: {keep_best: 3}")).checkpoint.keep_best->count == 3);
  CHECK(good(evaluated("seed: 1", ", checkpoint: {keep_best: \"2\"}")).checkpoint.keep_best->count == 2);
  const auto set = load(evaluated("seed: 1"), 1, {{"checkpoint.keep_best", "4"}}).config.checkpoint.keep_best;
  REQUIRE(set);
  CHECK(set->count == 4);
  CHECK(set->metric == "eval_loss");
  const auto more =
      load(evaluated("seed: 1", ", checkpoint: {keep_best: 3}"), 1, {{"checkpoint.keep_best.mode", "max"}});
  REQUIRE(more.config.checkpoint.keep_best);
  CHECK(more.config.checkpoint.keep_best->mode == MetricMode::kMax);
  CHECK(more.config.checkpoint.keep_best->count == 3);
}

TEST_CASE("a slip in what evaluations measure and decide is refused with the way out", "[config][metric_rules]") {
  const auto slip = GENERATE(values<Slip>({
      {evaluated("metrics: [\"accuracyy\"]"),
       "'train.metrics' has 'accuracyy', which is not a metric (did you mean 'accuracy'?); metrics by name are "
       "perplexity and accuracy, and {\"name\": \"accuracyy\", \"module\": \"metric.pt\"} is one of your own "
       "(docs/data.md)"},
      {evaluated("metrics: 3"), "'train.metrics' must be a list of names and of {\"name\": …, \"module\": …}, not 3"},
      {evaluated("metrics: [[\"accuracy\"]]"), "not a list"},
      {evaluated("metrics: [{name: \"f1\"}]"),
       "an entry of 'train.metrics' needs 'module': write {\"name\": \"f1\", \"module\": \"metric.pt\"}"},
      {evaluated("metrics: [{module: \"m.pt\"}]"), "an entry of 'train.metrics' needs 'name'"},
      {evaluated("metrics: [{name: \"f1\", modul: \"m.pt\"}]"),
       "unknown key 'modul' in an entry of 'train.metrics' (did you mean 'module'?)"},
      {evaluated("metrics: [{name: 3, module: \"m.pt\"}]"),
       "'name' of an entry of 'train.metrics' must be a text, not 3"},
      {evaluated("metrics: [{name: \"f 1\", module: \"m.pt\"}]"),
       "the name 'f 1' may have letters, digits and '_' only"},
      {evaluated("metrics: [{name: \"loss\", module: \"m.pt\"}]"),
       "'train.metrics' has two values named 'eval_loss'; choose another name"},
      {evaluated("metrics: [\"accuracy\", \"accuracy\"]"), "two values named 'eval_accuracy'"},
      {evaluated("metrics: [\"accuracy\"]", ", loss: \"mse\""), "accuracy counts classes with \"loss\": \"mse\""},
      {evaluated("metrics: [\"perplexity\"]", ", loss: \"mse\""), "perplexity is that of a cross entropy with"},
      {evaluated("early_stopping: 3"), "'train.early_stopping' must be an object, not 3"},
      {evaluated("early_stopping: {patients: 2}"), "did you mean 'patience'?"},
      {evaluated("early_stopping: {patience: 0}"), "'train.early_stopping.patience' must be at least 1, not 0"},
      {evaluated("early_stopping: {min_delta: -1}"), "'train.early_stopping.min_delta' must be at least 0, not -1"},
      {evaluated("early_stopping: {mode: \"lowest\"}"), "'train.early_stopping.mode' must be min or max"},
      {evaluated("early_stopping: {metric: \"eval_los\"}"),
       "'train.early_stopping.metric' must be a value of the evaluations, eval_loss, not 'eval_los' (did you mean "
       "'eval_loss'?); further ones come with 'train.metrics'"},
      {evaluated("early_stopping: {metric: \"accuracy\"}"),
       "'train.early_stopping.metric' is eval_accuracy, which evaluations do not measure: add \"accuracy\" to "
       "'train.metrics'"},
      {evaluated("metrics: [{name: \"f1\", module: \"m.pt\"}], early_stopping: {metric: \"f1\"}"),
       "'train.early_stopping.mode' is needed for eval_f1, a metric of your own: \"min\" or \"max\", whichever is "
       "better"},
      {"{data: {eval: \"e.npy\"}, train: {early_stopping: {}}}",
       "'train.early_stopping' decides by evaluations during the run, and there are none: set 'train.eval_interval' to "
       "the steps between them"},
      {"{train: {early_stopping: {}}}", "set 'data.eval' and 'train.eval_interval' to"},
      {"{checkpoint: {keep_best: 1}}", "'checkpoint.keep_best' decides by evaluations during the run"},
      {evaluated("seed: 1", ", checkpoint: {keep_best: 0}"), "'checkpoint.keep_best.count' must be at least 1, not 0"},
      {evaluated("seed: 1", ", checkpoint: {keep_best: \"yes\"}"), "'checkpoint.keep_best.count' must be an integer"},
      {evaluated("seed: 1", ", checkpoint: {keep_best: true}"), "'checkpoint.keep_best' must be an object"},
      {evaluated("seed: 1", ", checkpoint: {keep_best: {metric: \"perplexity\"}}"), "add \"perplexity\" to"},
  }));
  INFO(slip.text);
  CHECK_THAT(only_line(slip.text), Contains(slip.answer));
}
