#include "runtime/engine/step/loss.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.hpp"
#include "support/expect_error.hpp"
#include "support/script_models.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::step;

namespace {

double loss_of(const char* name, const at::Tensor& outputs, const at::Tensor& labels) {
  return (*make_loss(name, at::kCPU))({outputs, {}}, {labels}).item<double>();
}

// The mean of -log softmax at the label, written out.
double by_hand(const at::Tensor& rows, const at::Tensor& labels) {
  double sum = 0;
  for (int64_t i = 0; i < rows.size(0); ++i) {
    sum += rows[i].to(at::kDouble).logsumexp(0).item<double>() - rows[i][labels[i].item<int64_t>()].item<double>();
  }
  return sum / static_cast<double>(rows.size(0));
}

}  // namespace

TEST_CASE("cross entropy finds the classes in the last dim of a language model's logits", "[runtime][loss]") {
  auto logits = at::randn({2, 5, 7});
  auto labels = at::randint(0, 7, {2, 5}, at::kLong);
  CHECK(loss_of("cross_entropy", logits, labels) == Approx(by_hand(logits.view({10, 7}), labels.view({10}))));
}

TEST_CASE("labels of cross entropy may be integers of any type", "[runtime][loss]") {
  auto logits = at::randn({6, 7});
  auto labels = at::randint(0, 7, {6}, at::kLong);
  const double expected = loss_of("cross_entropy", logits, labels);
  for (auto type : {at::kInt, at::kShort, at::kChar, at::kByte}) {
    CHECK(loss_of("cross_entropy", logits, labels.to(type)) == expected);
  }
}

TEST_CASE("cross entropy finds the classes in dim 1 of an image's logits", "[runtime][loss]") {
  auto logits = at::randn({2, 7, 3, 4});
  auto labels = at::randint(0, 7, {2, 3, 4}, at::kLong);
  auto rows = logits.permute({0, 2, 3, 1}).reshape({24, 7});
  CHECK(loss_of("cross_entropy", logits, labels) == Approx(by_hand(rows, labels.reshape({24}))));
}

TEST_CASE("a squared error of unequal shapes is refused instead of broadcast", "[runtime][loss]") {
  CHECK(loss_of("mse", at::full({4, 1}, 3.0), at::ones({4, 1})) == Approx(4.0));
  CHECK_THROWS_WITH(loss_of("mse", at::ones({4, 1}), at::ones({4})),
                    Catch::Contains("[4, 1]") && Catch::Contains("[4]"));
}

TEST_CASE("a forward that returns no scalar is told how to name a loss", "[runtime][loss]") {
  auto loss = make_loss("", at::kCPU);
  CHECK_FALSE(loss->takes_labels());
  CHECK_THROWS_WITH((*loss)({at::ones({4, 7}), {}}, {}),
                    Catch::Contains("--loss cross_entropy") && Catch::Contains("\"loss\" in the config"));
}

TEST_CASE("a dict's loss is the one named so, never whatever stands first", "[runtime][loss]") {
  auto loss = make_loss("", at::kCPU);
  model::ForwardResult result{at::ones({}), {}};
  CHECK((*loss)(result, {}).item<double>() == 1);
  result.is_dict = true;
  CHECK_THROWS_WITH((*loss)(result, {}), Catch::Contains("named \"loss\""));
  result.named_loss = at::full({}, 2.0);
  CHECK((*loss)(result, {}).item<double>() == 2);
}

TEST_CASE("outputs of one number are not taken for the loss that stands behind them", "[runtime][loss]") {
  auto loss = make_loss("", at::kCPU);
  model::ForwardResult result{at::ones({1, 1}), {at::full({}, 2.0)}};
  CHECK_THROWS_WITH((*loss)(result, {}),
                    Catch::Contains("Float[1, 1] first") && Catch::Contains("must be the first element"));
  result.named_loss = result.others[0];
  CHECK((*loss)(result, {}).item<double>() == 2);
}

TEST_CASE("one number with dims is a loss by its name only: one sample's prediction looks the same",
          "[runtime][loss]") {
  auto loss = make_loss("", at::kCPU);
  for (const auto& one : {at::ones({1}), at::ones({1, 1})}) {
    CHECK_THROWS_WITH((*loss)({one, {}}, {}), Catch::Contains("expected a scalar loss"));
    model::ForwardResult result{at::ones({3}), {one}};
    result.named_loss = one;
    CHECK((*loss)(result, {}).item<double>() == 1);
  }
}

TEST_CASE("a loss that is an integer is told as one", "[runtime][loss]") {
  CHECK_THROWS_WITH((*make_loss("", at::kCPU))({at::ones({}, at::kLong), {}}, {}),
                    Catch::Contains("forward returned Long[], a number that is not of a floating-point type") &&
                        !Catch::Contains("scalar"));
}

TEST_CASE("cross entropy over one class, which is always 0, is refused", "[runtime][loss]") {
  const auto zeros = [](at::IntArrayRef sizes) { return at::zeros(sizes, at::kLong); };
  CHECK_THROWS_WITH(loss_of("cross_entropy", at::randn({4, 1}), zeros({4})), Catch::Contains("with one class"));
  CHECK_THROWS_WITH(loss_of("cross_entropy", at::randn({2, 5, 1}), zeros({2, 5})), Catch::Contains("with one class"));
  CHECK(loss_of("cross_entropy", at::zeros({4, 2, 1}), zeros({4, 1})) == Approx(std::log(2.0)));
}

namespace {

model::ForwardResult named_result(std::vector<std::pair<std::string, at::Tensor>> entries, bool has_own_names = true) {
  model::ForwardResult result{.has_own_names = has_own_names};
  for (auto& [name, value] : entries) {
    if (name == "loss") result.named_loss = value;
    result.names.push_back(name);
    result.first.defined() ? result.others.push_back(value) : void(result.first = value);
  }
  return result;
}

}  // namespace

TEST_CASE("a loss from outside takes the output that is meant, or asks which", "[runtime][loss][outputs]") {
  const at::Tensor hidden = at::randn({4, 9}), logits = at::randn({4, 3}), own = at::ones({}),
                   labels = at::randint(0, 3, {4}, at::kLong), mask = at::ones({4}, at::kBool);
  const auto taken = [&](const model::ForwardResult& result, const std::string& outputs = "") {
    const auto loss = make_loss("cross_entropy", at::kCPU, config::LossAverage::kMicroBatches, {}, false, outputs);
    return (*loss)(result, {labels}).item<double>();
  };
  const double expected = loss_of("cross_entropy", logits, labels);
  CHECK(taken(named_result({{"hidden_states", hidden}, {"logits", logits}})) == expected);
  CHECK(taken(named_result({{"loss", own}, {"logits", logits}})) == expected);
  CHECK(taken(named_result({{"loss", own}, {"scores", logits}, {"mask", mask}})) == expected);
  CHECK(taken(named_result({{"hidden", hidden}, {"scores", logits}}), "scores") == expected);
  CHECK(taken(named_result({{"0", logits}, {"1", hidden}}, false)) == expected);
  CHECK(taken(named_result({{"0", own}, {"1", logits}}, false)) == expected);
  CHECK(taken(named_result({{"0", hidden}, {"2", logits}}, false), "2") == expected);
  test::expect_error(
      ExitCode::kBadInput,
      {"loss 'cross_entropy' takes one of forward's outputs, and none of them is named 'logits': forward "
       "returned 'hidden' Float[4, 9], 'scores' Float[4, 3]; name the one to take in the config: "
       "\"outputs\": \"hidden\" | \"scores\""},
      [&] {
        taken(named_result({{"hidden", hidden}, {"scores", logits}}));
      });
  test::expect_error(ExitCode::kBadInput,
                     {"\"outputs\" in the config names 'score', but forward returned 'hidden' Float[4, 9], 'scores' "
                      "Float[4, 3] (did you mean 'scores'?)"},
                     [&] {
                       taken(named_result({{"hidden", hidden}, {"scores", logits}}), "score");
                     });
  test::expect_error(ExitCode::kBadInput, {"forward returned one tensor, Float[4, 3]; leave it out"}, [&] {
    taken({logits, {}}, "1");
  });
  test::expect_error(ExitCode::kBadInput, {"forward returned only its own loss; leave \"loss\" out"}, [&] {
    taken(named_result({{"loss", own}}));
  });
}

TEST_CASE("a loss from outside says which of several outputs it takes", "[runtime][loss][outputs]") {
  const at::Tensor labels = at::zeros({4}, at::kLong);
  const auto loss = make_loss("cross_entropy", at::kCPU);
  CHECK(loss->describe_choice({at::ones({4, 3}), {}}, {labels}).empty());
  CHECK(loss->describe_choice(named_result({{"hidden", at::ones({4, 9})}, {"logits", at::ones({4, 3})}}), {labels}) ==
        "loss 'cross_entropy' with labels Long[4] takes 'logits' Float[4, 3] of forward's outputs ('hidden' Float[4, "
        "9], 'logits' Float[4, 3]); \"outputs\" in the config names another");
}

TEST_CASE("a loss with labels wants exactly one array of them", "[runtime][loss]") {
  auto loss = make_loss("mse", at::kCPU);
  CHECK_THROWS_AS((*loss)({at::ones({4}), {}}, {}), UserError);
}

TEST_CASE("by tokens a loss is the sum over the labels that count", "[runtime][loss]") {
  auto sum_of = [](const char* name, const at::Tensor& outputs, const at::Tensor& labels) {
    return (*make_loss(name, at::kCPU, config::LossAverage::kTokens))({outputs, {}}, {labels}).item<double>();
  };
  auto logits = at::randn({2, 5, 7});
  auto labels = at::randint(0, 7, {2, 5}, at::kLong);
  const double whole = by_hand(logits.view({10, 7}), labels.view({10})) * 10;
  CHECK(sum_of("cross_entropy", logits, labels) == Approx(whole));
  const double first = by_hand(logits.view({10, 7}).narrow(0, 0, 1), labels.view({10}).narrow(0, 0, 1));
  labels[0][0] = -100;
  CHECK(sum_of("cross_entropy", logits, labels) == Approx(whole - first));
  CHECK(sum_of("cross_entropy", logits, at::full({2, 5}, -100, at::kLong)) == 0.0);  // a mean would be 0 / 0
  CHECK(sum_of("mse", at::full({4, 2}, 3.0), at::ones({4, 2})) == Approx(32.0));
  CHECK_THROWS_WITH(sum_of("cross_entropy", at::randn({3, 4}), at::softmax(at::randn({3, 4}), 1)),
                    Catch::Contains("counts labels"));
}

TEST_CASE("a loss may come from a file, as a mean or weighed by labels", "[runtime][loss]") {
  test::TempDir folder;
  test::compile({"Absolute", "def forward(self, outputs, labels):\n    return (outputs - labels).abs().mean()\n"})
      .save(folder / "loss.pt");
  const at::Tensor outputs = at::tensor({1.0F, 2.0F, 4.0F}), labels = at::tensor({1.0F, 0.0F, 0.0F});
  const auto mean = make_loss(folder / "loss.pt", at::kCPU, config::LossAverage::kMicroBatches, {});
  CHECK(mean->takes_labels());
  CHECK((*mean)({outputs}, {labels}).item<float>() == 2);
  const auto sum = make_loss(folder / "loss.pt", at::kCPU, config::LossAverage::kTokens, {});
  CHECK((*sum)({outputs}, {labels}).item<float>() == 6);
  CHECK_THROWS(make_loss(folder / "none.pt", at::kCPU, config::LossAverage::kMicroBatches, {}));
}

TEST_CASE("by tokens a model that shifts its labels averages over all but the first of a sample", "[runtime][loss]") {
  const auto labels = at::tensor({5, 6, -100, 7, 8, 9}, at::kLong).view({2, 3});
  const auto sum_of = [](const char* name, const at::Tensor& given, bool shifts) {
    const auto loss = make_loss(name, at::kCPU, config::LossAverage::kTokens, {}, shifts);
    return (*loss)({at::full({}, 0.5), {}}, {given}).item<double>();
  };
  CHECK(sum_of("", labels, /*shifts=*/true) == Approx(0.5 * 3));
  CHECK(sum_of("", labels, /*shifts=*/false) == Approx(0.5 * 5));
  auto only_first = at::full({2, 3}, -100, at::kLong);
  only_first.select(1, 0).fill_(4);
  CHECK(sum_of("", only_first, /*shifts=*/true) == 0.0);
  const auto loss = make_loss("", at::kCPU, config::LossAverage::kTokens, {}, /*forward_shifts=*/true);
  CHECK((loss->usable({only_first})[0] == -100).sum().item<int64_t>() == 0);  // else the model's mean is 0 / 0
  CHECK(loss->usable({labels})[0].equal(labels));
}
