// When a run stops early, and which checkpoints are the best.
#include "runtime/engine/run/evaluation_choice.hpp"

#include <catch2/catch.hpp>
#include <cmath>

using namespace dslaunch;
using namespace dslaunch::runtime::engine::run;
using config::MetricMode;

namespace {

const double kNothing = std::nan("");

// The number of evaluations after which a run with these values stops; 0: it does not.
size_t stops_after(const config::EarlyStopping& options, const std::vector<double>& values) {
  EarlyStopping early(options);
  for (size_t i = 0; i < values.size(); ++i) {
    early.add({static_cast<int64_t>(i + 1) * 10, values[i]});
    if (early.reason()) return i + 1;
  }
  return 0;
}

std::vector<bool> added(BestCheckpoints& best, const std::vector<double>& values) {
  std::vector<bool> out;
  for (size_t i = 0; i < values.size(); ++i) out.push_back(best.add({static_cast<int64_t>(i + 1) * 10, values[i]}));
  return out;
}

}  // namespace

TEST_CASE("a run stops after as many evaluations without a better value", "[runtime][engine][evaluation_choice]") {
  const auto [patience, delta, mode, values, expected] =
      GENERATE(table<int64_t, double, MetricMode, std::vector<double>, size_t>({
          {2, 0, MetricMode::kMin, {3, 2, 1, 1, 0.5, 0.6, 0.4, 0.4}, 0},
          {2, 0, MetricMode::kMin, {3, 2, 2, 2, 1}, 4},
          {2, 0, MetricMode::kMin, {3, 2, 2.5, 1.9, 2, 1.95}, 6},
          {1, 0, MetricMode::kMin, {3, 3}, 2},
          {2, 0.5, MetricMode::kMin, {3, 2.8, 2.6}, 3},
          {2, 0.5, MetricMode::kMin, {3, 2.8, 2.4, 2.3, 1.8}, 0},
          {2, 0, MetricMode::kMax, {1, 2, 3, 2.5, 2.9}, 5},
          {2, 0.5, MetricMode::kMax, {1, 1.4, 1.6, 1.7}, 0},
          {2, 0, MetricMode::kMin, {kNothing, 5, 4, kNothing, kNothing}, 5},  // what is not a number is not better
          {2, 0, MetricMode::kMin, {kNothing, kNothing, kNothing}, 3},
          {2, 0, MetricMode::kMin, {-INFINITY, 1, 1}, 3},
      }));
  CAPTURE(patience, delta, values);
  CHECK(stops_after({"eval_loss", patience, delta, mode}, values) == expected);
}

TEST_CASE("the reason for a stop has its numbers", "[runtime][engine][evaluation_choice]") {
  EarlyStopping early({"eval_loss", 2, 0.25, MetricMode::kMin});
  for (int64_t step : {10, 20, 30}) early.add({step, 2.5 - 0.01 * static_cast<double>(step)});
  CHECK(
      early.reason() ==
      "eval_loss has not become lower by more than 0.25 in 2 evaluations: 2.4000 after step 10, 2.2000 after step 30");
  EarlyStopping highest({"eval_accuracy", 1, 0, MetricMode::kMax});
  for (int64_t step : {10, 20}) highest.add({step, 0.5});
  CHECK(highest.reason() ==
        "eval_accuracy has not become higher in 1 evaluation: 0.5000 after step 10, 0.5000 after step 20");
}

TEST_CASE("the best checkpoints are those with the best values", "[runtime][engine][evaluation_choice]") {
  BestCheckpoints one({"eval_loss", MetricMode::kMin, 1});
  CHECK_FALSE(one.best());
  CHECK(one.text().empty());
  CHECK(added(one, {kNothing, 3, 3, 2.25, 4}) == std::vector<bool>{false, true, false, true, false});
  CHECK(one.best()->step == 40);
  CHECK(one.text() == "step_00000040 eval_loss 2.25\n");
  BestCheckpoints two({"eval_accuracy", MetricMode::kMax, 2});
  CHECK(added(two, {0.25, 0.5, 0.5, 0.75, 0.5}) == std::vector<bool>{true, true, true, true, false});
  CHECK(two.text() == "step_00000040 eval_accuracy 0.75\nstep_00000020 eval_accuracy 0.5\n");
}
