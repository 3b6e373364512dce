#include "runtime/engine/step/step_verdict.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "runtime/engine/step/shard_update.hpp"
#include "support/thread_communicator.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::step;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

config::LossScale dynamic_scale() {
  config::LossScale scale;
  scale.kind = config::LossScaleKind::kDynamic;
  scale.initial = 4;
  scale.hysteresis = 1;
  return scale;
}

// One rank: a span of two elements, and what decides and updates it. The learning rate is 1, by SGD.
struct Rank {
  const config::Optimizer settings{.type = config::OptimizerType::kSgd, .lr = 1};
  const optim::OptimizerGroups groups{{{"default", settings}}, {0}, 0};
  const config::Scheduler scheduler;
  RateSchedule rates{scheduler, groups, 0};
  precision::LossScaling loss_scaling;
  StepVerdict verdict;
  std::unique_ptr<optim::FlatOptimizer> optimizer = optim::make_flat_optimizer(groups, {});
  ShardUpdate update{*optimizer, loss_scaling, rates, /*keeps_masters=*/true, nullptr};
  std::vector<SpanState> state{{{0, 0, {0, 2}}, arrays_of_parameter(at::zeros({2}), at::kCPU)}};
  int64_t steps_done = 0;

  Rank(comm::Communicator& group, StepVerdict::Options options, const config::LossScale& scale = {})
      : loss_scaling(scale, at::kCPU), verdict(options, loss_scaling, rates, group) {}

  StepResult step(float loss, const at::Tensor& gradient, bool stop = false, double label_weight = 0) {
    state[0].arrays.gradient = gradient;
    const Verdict decided = verdict.decide({at::scalar_tensor(loss), label_weight, 0}, state, stop);
    update.run(state, decided, {});
    loss_scaling.advance();
    return *verdict.publish({.step = ++steps_done});
  }
  at::Tensor& parameter() { return state[0].arrays.master; }
};

struct Alone {
  test::ThreadCommunicator group{std::make_shared<test::ThreadGroup>(1), 0};
};

}  // namespace

TEST_CASE("a verdict averages and clips the summed gradients", "[runtime][engine][step_verdict]") {
  Alone alone;
  Rank rank(alone.group, {.max_norm = 1, .gradient_divisor = 2, .total_micro_batches = 4});
  const auto result = rank.step(12, at::tensor({6.0F, 8.0F}));
  CHECK(result.loss == 3);
  CHECK(result.grad_norm == 5);  // of (3, 4), before clipping
  CHECK_FALSE(result.overflow);
  CHECK(result.num_skipped == 0);
  CHECK(at::allclose(rank.parameter(), at::tensor({-0.6F, -0.8F})));
}

TEST_CASE("a factor that is known before a step is the one of its verdict", "[runtime][engine][step_verdict]") {
  Alone alone;
  Rank rank(alone.group, {.gradient_divisor = 3});
  rank.state[0].arrays.gradient = at::tensor({6.0F, 8.0F});
  const auto verdict = rank.verdict.decide({at::scalar_tensor(1.0F), 0, 0}, rank.state, false);
  CHECK(at::equal(*rank.verdict.known_factor(), verdict.gradient_factor));
  CHECK_FALSE(Rank(alone.group, {.max_norm = 100}).verdict.known_factor());
  CHECK_FALSE(Rank(alone.group, {.sums_over_labels = true}).verdict.known_factor());
  CHECK_FALSE(Rank(alone.group, {}, dynamic_scale()).verdict.known_factor());
}

TEST_CASE("all ranks reach one verdict", "[runtime][engine][step_verdict]") {
  auto group = std::make_shared<test::ThreadGroup>(2);
  std::vector<StepResult> results(2);
  std::vector<std::thread> threads;
  for (int index = 0; index < 2; ++index) {
    threads.emplace_back([&, index] {
      test::ThreadCommunicator communicator(group, index);
      Rank rank(communicator, {.total_micro_batches = 2});
      const float own = static_cast<float>(index);
      results[static_cast<size_t>(index)] =
          rank.step(1 + own, index == 0 ? at::tensor({3.0F, 0.0F}) : at::tensor({0.0F, 4.0F}), /*stop=*/index == 1);
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) {
    CHECK(result.loss == 1.5);
    CHECK(result.grad_norm == 5);
    CHECK(result.stop_requested);
  }
}

TEST_CASE("gradients that another rank counts are left out of the norm", "[runtime][engine][step_verdict]") {
  Alone alone;
  Rank rank(alone.group, {.contributes_norm = false});
  CHECK(rank.step(1, at::tensor({3.0F, 4.0F})).grad_norm == 0);
}

TEST_CASE("a loss that another rank counts is left out, even if it is not a number",
          "[runtime][engine][step_verdict]") {
  Alone alone;
  Rank rank(alone.group, {.contributes_loss = false});
  const auto result = rank.step(std::numeric_limits<float>::quiet_NaN(), at::tensor({3.0F, 4.0F}));
  CHECK(result.loss == 0);
  CHECK(result.grad_norm == 5);
}

TEST_CASE("losses over labels become means over the labels that count", "[runtime][engine][step_verdict]") {
  Alone alone;
  // Two micro batches, of whose labels a half and a quarter count: the mean over all of them is 3/8 of that.
  Rank rank(alone.group, {.gradient_divisor = 1, .total_micro_batches = 2, .sums_over_labels = true});
  const auto result = rank.step(6, at::tensor({3.0F, 0.0F}), false, /*label_weight=*/0.75);
  const double factor = 2 / 0.75;
  CHECK(result.loss == Approx(3 * factor));
  CHECK(result.grad_norm == Approx(3 * factor));
  CHECK(rank.parameter()[0].item<double>() == Approx(-3 * factor));
}

TEST_CASE("an overflow skips the update and lowers the loss scale", "[runtime][engine][step_verdict]") {
  Alone alone;
  Rank rank(alone.group, {}, dynamic_scale());
  auto result = rank.step(1, at::tensor({4.0F, 8.0F}));
  CHECK_FALSE(result.overflow);
  CHECK(result.loss_scale == 4);
  CHECK(result.grad_norm == Approx(std::sqrt(5.0)));  // without the scale
  CHECK(at::equal(rank.parameter(), at::tensor({-1.0F, -2.0F})));

  result = rank.step(1, at::tensor({kInfinity, 8.0F}));
  CHECK(result.overflow);
  CHECK_FALSE(result.overflow_line.empty());
  CHECK(result.num_skipped == 1);
  CHECK(result.next_loss_scale == 2);
  CHECK(at::equal(rank.parameter(), at::tensor({-1.0F, -2.0F})));

  result = rank.step(1, at::tensor({4.0F, 8.0F}));
  CHECK_FALSE(result.overflow);
  CHECK(result.num_skipped == 1);
  CHECK(at::equal(rank.parameter(), at::tensor({-3.0F, -6.0F})));
}

TEST_CASE("without a loss scale nothing is updated from the first non-finite step on",
          "[runtime][engine][step_verdict]") {
  Alone alone;
  Rank rank(alone.group, {});
  rank.step(1, at::tensor({1.0F, 1.0F}));
  const auto result = rank.step(std::nanf(""), at::tensor({1.0F, 1.0F}));
  CHECK(std::isnan(result.loss));
  CHECK_FALSE(result.overflow);
  rank.step(1, at::tensor({1.0F, 1.0F}));
  CHECK(at::equal(rank.parameter(), at::tensor({-1.0F, -1.0F})));
}

TEST_CASE("observers see the state before its update and may update copies", "[runtime][engine][shard_update]") {
  class Watch : public EngineObserver {
   public:
    void before_update(std::span<const SpanState> state, const ApplyUpdate& update) override {
      before = state[0].arrays.master.clone();
      std::vector<SpanState> copies{{state[0].span, arrays_of_parameter(before.clone(), at::kCPU)}};
      copies[0].arrays.gradient = state[0].arrays.gradient * 10;
      update(copies);
      after = copies[0].arrays.master;
    }
    at::Tensor before, after;
  };
  Alone alone;
  Rank rank(alone.group, {});
  rank.step(1, at::tensor({1.0F, 2.0F}));
  Watch watch;
  EngineObserver* observers[] = {&watch};
  rank.state[0].arrays.gradient = at::tensor({1.0F, 2.0F});
  rank.update.run(rank.state, rank.verdict.decide({at::scalar_tensor(1.0F), 0, 0}, rank.state, false), observers);
  CHECK(at::equal(watch.before, at::tensor({-1.0F, -2.0F})));
  CHECK(at::equal(watch.after, at::tensor({-11.0F, -22.0F})));
  CHECK(at::equal(rank.parameter(), at::tensor({-2.0F, -4.0F})));
}
