#include "runtime/engine/step/gradient_pass.hpp"

#include <ATen/ATen.h>
#include <torch/torch.h>

#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "support/one_weight.hpp"
#include "support/thread_communicator.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::setup;
using namespace dslaunch::runtime::engine::step;

namespace {

std::vector<pipeline::Action> plan_pass(int num_micro_batches) {
  return pipeline::plan_schedule(pipeline::ScheduleKind::k1F1B, /*num_stages=*/1, /*stage=*/0, num_micro_batches);
}

// A model of one weight in place of a traced one: the loss is the sum of weight * input, so the input is the gradient.
struct Fake {
  ParameterTable table = test::one_weight();
  StepStreams streams{at::kCPU, false};
  FlatParameters parameters;
  precision::LossScaling loss_scaling;
  StepPhases phases;
  int64_t num_forwards = 0, num_backwards = 0;
  std::vector<std::string> order;

  explicit Fake(comm::Communicator& group, const config::LossScale& scale = {})
      : parameters(table, test::replicated(), streams, group, group), loss_scaling(scale, at::kCPU) {
    parameters.load([](int, int64_t, at::Tensor out) { out.fill_(1); });
  }

  at::Tensor loss_of(const MicroBatch& batch) {
    const int64_t call = num_forwards++;
    order.push_back("F" + std::to_string(call));
    const at::Tensor weight = parameters.acquire(0, UnitCall::kTraining).parameters[0].detach().requires_grad_();
    weight.register_hook([this](const at::Tensor& gradient) {
      order.push_back("B" + std::to_string(num_backwards++));
      parameters.take_gradients(0, {gradient});
    });
    at::Tensor loss = (weight * batch.inputs[0]).sum();
    parameters.release(0);
    return loss;
  }

  GradientPass pass(GradientPass::Options options) {
    return {std::move(options),
            [this](const MicroBatch& batch, const model::CarriedValues&) {
              return StageResult{loss_of(batch), {}};
            },
            parameters, loss_scaling, phases};
  }
};

// Micro batches of the inputs [i, 10 i], i from 1, with two labels of which one counts.
std::function<MicroBatch()> batches() {
  return [i = 0.0F]() mutable {
    i += 1;
    return MicroBatch{{at::tensor({i, 10 * i})}, {at::zeros({2})}, /*num_tokens=*/5, /*num_labels=*/1};
  };
}

void run(GradientPass& pass) {
  pass.begin();
  const auto next = batches();
  pass.compute([&] { return pass.fetch(next); });
}

at::Tensor gradient(Fake& fake) {
  return fake.parameters.state()[0].arrays.gradient.narrow(0, 0, 2);
}

}  // namespace

TEST_CASE("a pass runs one micro batch after the other", "[runtime][engine][gradient_pass]") {
  using Kind = pipeline::ActionKind;
  CHECK((plan_pass(2) == std::vector<pipeline::Action>{
                             {Kind::kForward, 0}, {Kind::kBackward, 0}, {Kind::kForward, 1}, {Kind::kBackward, 1}}));
}

TEST_CASE("a pass sums losses, gradients and counts of its micro batches", "[runtime][engine][gradient_pass]") {
  test::ThreadCommunicator alone(std::make_shared<test::ThreadGroup>(1), 0);
  Fake fake(alone);
  auto pass = fake.pass({.actions = plan_pass(3), .accumulation = 2});
  CHECK(pass.num_micro_batches() == 3);
  for (int step = 0; step < 2; ++step) {  // the second step must not see the first one's sums
    fake.order.clear();
    fake.num_forwards = fake.num_backwards = 0;
    run(pass);
    CHECK((fake.order == std::vector<std::string>{"F0", "B0", "F1", "B1", "F2", "B2"}));
    CHECK(pass.sums().loss.item<float>() == 11 + 22 + 33);
    CHECK(pass.sums().num_tokens == 15);
    CHECK(pass.sums().label_weight == 0);
    CHECK(at::equal(gradient(fake), at::tensor({3.0F, 30.0F})));  // of half the losses
    fake.parameters.release_gradients();
  }
}

TEST_CASE("losses that are sums over labels are divided by all labels of their micro batch",
          "[runtime][engine][gradient_pass]") {
  test::ThreadCommunicator alone(std::make_shared<test::ThreadGroup>(1), 0);
  Fake fake(alone);
  auto pass = fake.pass({.actions = plan_pass(2), .accumulation = 1, .sums_over_labels = true});
  run(pass);
  CHECK(pass.sums().loss.item<float>() == (11 + 22) / 2.0F);
  CHECK(pass.sums().label_weight == 1.0);  // half the labels of both
  CHECK(at::equal(gradient(fake), at::tensor({1.5F, 15.0F})));
}

TEST_CASE("the gradients carry the loss scale, the sum of the losses does not", "[runtime][engine][gradient_pass]") {
  test::ThreadCommunicator alone(std::make_shared<test::ThreadGroup>(1), 0);
  config::LossScale scale;
  scale.kind = config::LossScaleKind::kStatic;
  scale.initial = 8;
  Fake fake(alone, scale);
  auto pass = fake.pass({.actions = plan_pass(1)});
  run(pass);
  CHECK(pass.sums().loss.item<float>() == 11);
  CHECK(at::equal(gradient(fake), at::tensor({8.0F, 80.0F})));
}

TEST_CASE("a pass reduces its gradients over the ranks", "[runtime][engine][gradient_pass]") {
  auto group = std::make_shared<test::ThreadGroup>(2);
  std::vector<at::Tensor> gradients(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      test::ThreadCommunicator communicator(group, rank);
      Fake fake(communicator);
      auto pass = fake.pass({.actions = plan_pass(2)});
      run(pass);
      gradients[static_cast<size_t>(rank)] = gradient(fake).clone();
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& sum : gradients) CHECK(at::equal(sum, at::tensor({6.0F, 60.0F})));
}

TEST_CASE("a loss without a graph is the model's mistake", "[runtime][engine][gradient_pass]") {
  test::ThreadCommunicator alone(std::make_shared<test::ThreadGroup>(1), 0);
  Fake fake(alone);
  GradientPass pass(
      {.actions = plan_pass(1)},
      [](const MicroBatch&, const model::CarriedValues&) {
        return StageResult{at::ones({}), {}};
      },
      fake.parameters, fake.loss_scaling, fake.phases);
  CHECK_THROWS_WITH(run(pass), Catch::Contains("does not depend on any trainable parameter"));
}

TEST_CASE("a loss is computed again without leaving gradients", "[runtime][engine][gradient_pass]") {
  test::ThreadCommunicator alone(std::make_shared<test::ThreadGroup>(1), 0);
  Fake fake(alone);
  auto pass = fake.pass({.actions = plan_pass(1)});
  const auto next = batches();
  CHECK(pass.loss_of(next(), /*with_gradients=*/true).item<float>() == 11);
  CHECK(fake.num_backwards == 1);
  CHECK_FALSE(fake.parameters.state()[0].arrays.gradient.defined());
  run(pass);
  CHECK(at::equal(gradient(fake), at::tensor({1.0F, 10.0F})));
}
