// What metrics make of results and labels: which tensors are compared, their sums, and what is refused.
#include "runtime/engine/step/metrics.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "support/expect_error.hpp"
#include "support/mesh_threads.hpp"
#include "support/script_models.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::step;
using test::expect_error;

namespace {

// By hand, row by row: `outputs` [rows, classes].
double share_of_right(const at::Tensor& outputs, const at::Tensor& labels) {
  int64_t right = 0, counted = 0;
  for (int64_t row = 0; row < labels.numel(); ++row) {
    const auto label = labels[row].item<int64_t>();
    if (label == -100) continue;
    ++counted;
    int64_t best = 0;
    for (int64_t i = 1; i < outputs.size(1); ++i) {
      if (outputs[row][i].item<double>() > outputs[row][best].item<double>()) best = i;
    }
    right += best == label ? 1 : 0;
  }
  return static_cast<double>(right) / static_cast<double>(counted);
}

double accuracy_of(const at::Tensor& outputs, const at::Tensor& labels, bool prefers_second = true) {
  const auto accuracy = make_accuracy(prefers_second);
  return accuracy->value_of(accuracy->sums_of({outputs, labels}).to(at::kDouble));
}

std::string save_metric(const test::TempDir& dir, const std::string& source) {
  const std::string path = dir / "metric.pt";
  test::compile({"Metric", source}).save(path);
  return path;
}

double value_of_file(const std::string& path, const Predictions& batch) {
  const auto metric = make_module_metric({"mine", path}, {}, at::kCPU);
  return metric->value_of(metric->sums_of(batch).to(at::kDouble));
}

constexpr const char* kF1 =
    "def forward(self, outputs, labels):\n"
    "    found = outputs.argmax(-1) == 1\n"
    "    wanted = labels == 1\n"
    "    return torch.stack([2 * (found & wanted).sum(), found.sum() + wanted.sum()])\n";

}  // namespace

TEST_CASE("accuracy is the share of right labels among those that count", "[runtime][metrics]") {
  at::manual_seed(3);
  const at::Tensor rows = at::randn({24, 7});
  at::Tensor labels = at::where(at::rand({24}) < 0.4, rows.argmax(1), at::randint(0, 7, {24}, at::kLong));
  labels.narrow(0, 5, 3).fill_(-100);
  const double expected = share_of_right(rows, labels);
  REQUIRE((expected > 0.2 && expected < 0.9));
  CHECK(accuracy_of(rows, labels) == Approx(expected));
  CHECK(accuracy_of(rows, labels.to(at::kShort)) == Approx(expected));
  CHECK(accuracy_of(rows.to(at::kDouble), labels) == Approx(expected));
  SECTION("of a language model, in the last dim") {
    CHECK(accuracy_of(rows.view({4, 6, 7}), labels.view({4, 6})) == Approx(expected));
    CHECK(accuracy_of(rows.view({4, 6, 7}), labels.view({4, 6}), /*prefers_second=*/false) == Approx(expected));
  }
  SECTION("of images, in dim 1") {
    CHECK(accuracy_of(rows.view({2, 3, 4, 7}).permute({0, 3, 1, 2}), labels.view({2, 3, 4})) == Approx(expected));
  }
  SECTION("where both would do, as told") {
    const at::Tensor square = rows.narrow(0, 0, 14).view({2, 7, 7}), of_square = labels.narrow(0, 0, 14).view({2, 7});
    CHECK(accuracy_of(square, of_square, /*prefers_second=*/false) ==
          Approx(share_of_right(rows.narrow(0, 0, 14), labels.narrow(0, 0, 14))));
    CHECK(accuracy_of(square.transpose(1, 2), of_square, /*prefers_second=*/true) ==
          Approx(share_of_right(rows.narrow(0, 0, 14), labels.narrow(0, 0, 14))));
  }
  CHECK(std::isnan(accuracy_of(rows, at::full({24}, -100, at::kLong))));
}

TEST_CASE("accuracy of what has no classes is refused with the shapes", "[runtime][metrics]") {
  const at::Tensor labels = at::zeros({4}, at::kLong);
  expect_error(ExitCode::kBadInput,
               {"accuracy of outputs Float[4, 3] and labels Float[4]", "save class labels as integers"}, [&] {
                 accuracy_of(at::ones({4, 3}), at::ones({4}));
               });
  expect_error(ExitCode::kBadInput, {"Float[4, 3]", "Long[4, 1]", "no dim of classes", "leave accuracy out"}, [&] {
    accuracy_of(at::ones({4, 3}), labels.view({4, 1}));
  });
  expect_error(ExitCode::kBadInput, {"one class is always right"}, [&] { accuracy_of(at::ones({4, 1}), labels); });
}

TEST_CASE("predictions are found beside the loss, or first where a loss from outside takes them",
          "[runtime][metrics]") {
  const at::Tensor loss = at::ones({}), logits = at::randn({2, 5, 7}), hidden = at::randn({2, 9}),
                   labels = at::randint(0, 7, {2, 5}, at::kLong);
  const PredictionSource own{.has_own_loss = true}, outside;
  CHECK(find_predictions({logits, {}}, {labels}, outside, "accuracy").outputs.is_same(logits));
  CHECK(find_predictions({loss, {logits}}, {labels}, own, "accuracy").outputs.is_same(logits));
  CHECK(find_predictions({loss, {hidden, labels, logits}}, {labels}, own, "accuracy").outputs.is_same(logits));
  CHECK(
      find_predictions({loss, {hidden}}, {labels}, own, "mine").outputs.is_same(hidden));  // for a metric of one's own
  model::ForwardResult named{logits, {loss}};  // a NamedTuple whose loss is not the first
  named.named_loss = loss;
  CHECK(find_predictions(named, {labels}, own, "accuracy").outputs.is_same(logits));
  model::ForwardResult dict{loss, {hidden, at::randn({2, 5, 3}), logits}};
  dict.named_loss = loss;
  dict.has_own_names = true;
  dict.names = {"loss", "hidden", "other", "scores"};
  expect_error(ExitCode::kBadInput,
               {"train.metrics: accuracy takes one of forward's outputs", "\"other\" | \"scores\""},
               [&] { find_predictions(dict, {labels}, own, "accuracy"); });
  CHECK(find_predictions(dict, {labels}, {.has_own_loss = true, .outputs = "scores"}, "accuracy")
            .outputs.is_same(logits));
  dict.names.back() = "logits";
  CHECK(find_predictions(dict, {labels}, own, "accuracy").outputs.is_same(logits));
  CHECK(find_predictions(dict, {labels}, outside, "accuracy").outputs.is_same(logits));
  expect_error(ExitCode::kBadInput,
               {"accuracy needs the model's outputs", "--returns loss_logits", "leave accuracy out"}, [&] {
                 find_predictions({loss, {}}, {labels}, own, "accuracy");
               });
  expect_error(ExitCode::kBadInput, {"accuracy takes one array of labels, but the data names 2"}, [&] {
    find_predictions({logits, {}}, {labels, labels}, outside, "accuracy");
  });
  SECTION("a model that shifts its labels predicts the next one") {
    const auto found = find_predictions({loss, {logits}}, {labels}, {.has_own_loss = true, .shifts = true}, "accuracy");
    CHECK(found.outputs.equal(logits.narrow(1, 0, 4)));
    CHECK(found.labels.equal(labels.narrow(1, 1, 4)));
  }
}

TEST_CASE("a metric from a file is a ratio of its sums, or what its compute makes of them", "[runtime][metrics]") {
  const test::TempDir dir;
  const at::Tensor outputs = at::tensor({0.1, 0.9, 0.8, 0.2, 0.3, 0.7, 0.6, 0.4}).view({4, 2}),
                   labels = at::tensor({1, 1, 0, 0}, at::kLong);  // found are rows 0 and 2
  CHECK(value_of_file(save_metric(dir, kF1), {outputs, labels}) == Approx(2.0 * 1 / (2 + 2)));
  const std::string root =
      "def forward(self, outputs, labels):\n"
      "    difference = outputs[:, 0] - labels\n"
      "    return torch.stack([(difference * difference).sum(), torch.tensor(float(labels.numel())), torch.ones([])])\n"
      "def compute(self, sums):\n"
      "    return torch.sqrt(sums[0] / sums[1])\n";
  CHECK(value_of_file(save_metric(dir, root), {outputs, labels}) ==
        Approx(std::sqrt((0.81 + 0.04 + 0.09 + 0.36) / 4)).epsilon(1e-6));
  // It gets fp32, also of a model in 16 bits.
  const std::string type =
      "def forward(self, outputs, labels):\n"
      "    return torch.tensor([1.0 if outputs.dtype == 6 else 0.0, 1.0])\n";
  CHECK(value_of_file(save_metric(dir, type), {outputs.to(at::kBFloat16), labels}) == 1);
}

TEST_CASE("a file without a metric is refused with what it did", "[runtime][metrics]") {
  const test::TempDir dir;
  const Predictions batch{at::ones({4, 2}), at::zeros({4}, at::kLong)};
  const auto refused = [&](const std::string& body, const std::vector<std::string>& parts) {
    const std::string path = save_metric(dir, "def forward(self, outputs, labels):\n    " + body + "\n");
    INFO(body);
    expect_error(ExitCode::kBadInput, parts, [&] { value_of_file(path, batch); });
  };
  refused("return outputs.mean()", {"'mine' of '", "Float[4, 2] and labels Long[4]", "returned Float[]", "two sums"});
  refused("return torch.ones([3])", {"returned Float[3]", "compute(sums)"});
  refused("return 1.0", {"failed: "});
  refused("return outputs + labels", {"failed: The size of tensor"});
  refused("return torch.ones([2])\ndef compute(self, sums):\n    return sums",
          {"compute of ", "returned Double[2]", "one number"});
  const std::string path = dir / "metric.pt";
  test::compile({"Metric", "def update(self, outputs):\n    return outputs\n"}).save(path);
  expect_error(ExitCode::kBadInput, {"no method 'forward'"}, [&] { value_of_file(path, batch); });
}

TEST_CASE("metrics add up over batches and ranks", "[runtime][metrics]") {
  const test::TempDir dir;
  config::JobConfig config;
  config.loss = "cross_entropy";
  config.train.metrics = {{"perplexity", ""}, {"f1", save_metric(dir, kF1)}, {"accuracy", ""}};
  at::manual_seed(4);
  const at::Tensor outputs = at::randn({30, 2}), labels = at::randint(0, 2, {30}, at::kLong);
  const int64_t ends[] = {7, 8, 8, 30};  // rank 1 has one sample, rank 2 none
  std::vector<std::vector<std::pair<std::string, double>>> values(4);
  test::run_mesh({.data = 4}, [&](const comm::Groups& groups) {
    const auto rank = static_cast<size_t>(groups.world.rank());
    Metrics metrics(config, LabelConvention::kNotRecorded, at::kCPU);
    CHECK(metrics.reads_results());
    for (int evaluation = 0; evaluation < 2; ++evaluation) {  // the second begins at zero again
      metrics.begin();
      for (int64_t at = rank == 0 ? 0 : ends[rank - 1]; at < ends[rank]; at += 5) {
        const int64_t count = std::min<int64_t>(5, ends[rank] - at);
        metrics.add({outputs.narrow(0, at, count), {}}, {labels.narrow(0, at, count)});
      }
      values[rank] = metrics.finish(/*label_loss=*/0.5, groups);
    }
  });
  for (const auto& own : values) {
    REQUIRE(own.size() == 3);
    CHECK(own[0] == std::pair<std::string, double>("perplexity", std::exp(0.5)));
    CHECK(own[1].second == Approx(value_of_file(dir / "metric.pt", {outputs, labels})));
    CHECK(own[2].second == Approx(share_of_right(outputs, labels)));
  }
}
