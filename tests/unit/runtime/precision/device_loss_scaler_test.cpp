#include "runtime/precision/device_loss_scaler.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <random>

#include "runtime/precision/loss_scaling.hpp"

namespace {

using dslaunch::config::LossScale;
using dslaunch::config::LossScaleKind;
using namespace dslaunch::runtime::precision;

LossScale random_policy(std::mt19937& random) {
  auto pick = [&](std::initializer_list<double> choices) {
    return *(choices.begin() + static_cast<int64_t>(random() % choices.size()));
  };
  LossScale policy;
  policy.kind = pick({0, 1, 1, 1}) == 0 ? LossScaleKind::kStatic : LossScaleKind::kDynamic;
  policy.initial = pick({1, 64, 1000.5, 65536, 4294967296.0});
  policy.window = static_cast<int64_t>(pick({1, 2, 3, 7}));
  policy.hysteresis = static_cast<int64_t>(pick({1, 2, 4}));
  policy.consecutive_hysteresis = pick({0, 1}) != 0;
  policy.minimum = pick({0, 1, 100});
  if (pick({0, 1}) != 0) policy.maximum = 131072;
  policy.late_growth = pick({0, 1}) != 0;
  return policy;
}

at::Tensor verdict(bool overflow) {
  return at::scalar_tensor(overflow, at::kBool);
}

float kClean = 1.0F, kBroken = std::numeric_limits<float>::infinity();

// One step as the engine makes it, but for the optimizer.
ScaleChange make_step(LossScaling& scaling, float value) {
  scaling.detect_overflow(at::full({2}, value));
  const at::Tensor report = scaling.report();
  scaling.advance();
  return scaling.follow(report.const_data_ptr<float>());
}

}  // namespace

TEST_CASE("the device's scaler is the host's, for any settings and overflows", "[runtime][device_loss_scaler]") {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    const LossScale policy = random_policy(random);
    LossScaler host(policy);
    DeviceLossScaler device(policy, at::kCPU);
    const unsigned one_in = 1 + random() % 6;
    for (int step = 0; step < 40; ++step) {
      const bool overflow = random() % one_in == 0;
      host.update(overflow);
      device.update(verdict(overflow));
      LossScaleState expected = host.state();
      expected.overflows_in_row = 0;
      INFO("round " << round << " step " << step << ", scale " << expected.scale << " and " << device.read().scale);
      REQUIRE(device.read() == expected);
    }
  }
}

TEST_CASE("the device's scalars keep their addresses", "[runtime][device_loss_scaler]") {
  LossScale policy;
  policy.kind = LossScaleKind::kDynamic;
  DeviceLossScaler device(policy, at::kCPU);
  const void* scale = device.scale().const_data_ptr();
  const void* applied = device.applied_steps().const_data_ptr();
  for (bool overflow : {true, false, true}) device.update(verdict(overflow));
  device.set({.scale = 4, .applied_steps = 7});
  CHECK(device.scale().const_data_ptr() == scale);
  CHECK(device.applied_steps().const_data_ptr() == applied);
  CHECK(device.scale().item<double>() == 4);
  CHECK(device.applied_steps().item<int64_t>() == 7);
}

TEST_CASE("a scaled step gives back norm and factor of the true gradient", "[runtime][loss_scaling]") {
  LossScale policy;
  policy.kind = LossScaleKind::kDynamic;
  policy.initial = 1024;
  const LossScaling scaling(policy, at::kCPU);
  const at::Tensor loss = at::scalar_tensor(3.0, at::kHalf);
  CHECK(scaling.scaled(loss).scalar_type() == at::kFloat);
  CHECK(scaling.scaled(loss).item<float>() == 3072);
  CHECK(scaling.unscaled_squares(at::scalar_tensor(25.0 * 1024 * 1024, at::kDouble)).item<double>() == 25);
  CHECK(scaling.unscaled_factor(at::scalar_tensor(0.5, at::kFloat)).item<float>() == 0.5F / 1024);
}

TEST_CASE("anything that is not finite in the statistics skips the step", "[runtime][loss_scaling]") {
  LossScale policy;
  policy.kind = LossScaleKind::kDynamic;
  policy.initial = 8;
  policy.hysteresis = 1;
  LossScaling scaling(policy, at::kCPU);
  CHECK_FALSE(make_step(scaling, kClean).overflow());
  CHECK(make_step(scaling, kBroken).overflow());
  CHECK(scaling.skip().item<float>() == 1);
  CHECK(make_step(scaling, std::nanf("")).overflow());
  CHECK_FALSE(make_step(scaling, kClean).overflow());
  CHECK(scaling.skip().item<float>() == 0);
  CHECK(scaling.state().scale == 2);
  CHECK(scaling.known_applied_steps() == 2);
  CHECK(scaling.applied_steps().item<int64_t>() == 2);
}

TEST_CASE("the host may follow later than the device goes", "[runtime][loss_scaling]") {
  LossScale policy;
  policy.kind = LossScaleKind::kDynamic;
  policy.initial = 8;
  policy.hysteresis = 1;
  LossScaling scaling(policy, at::kCPU);
  std::vector<at::Tensor> reports;
  for (float value : {kClean, kBroken, kBroken}) {
    scaling.detect_overflow(at::full({2}, value));
    reports.push_back(scaling.report());
    scaling.advance();
  }
  CHECK(scaling.num_unknown_steps() == 3);
  CHECK(scaling.known_applied_steps() == 0);
  CHECK(scaling.follow(reports[0].const_data_ptr<float>()).scale == 8);
  CHECK(scaling.follow(reports[1].const_data_ptr<float>()).next_scale == 4);
  CHECK(scaling.follow(reports[2].const_data_ptr<float>()).next_scale == 2);
  CHECK(scaling.num_unknown_steps() == 0);
}

TEST_CASE("without a scale nothing is scaled, judged or skipped", "[runtime][loss_scaling]") {
  LossScaling scaling({}, at::kCPU);
  const at::Tensor loss = at::scalar_tensor(3.0, at::kBFloat16);
  CHECK(scaling.scaled(loss).is_same(loss));
  scaling.detect_overflow(at::full({2}, kBroken));
  CHECK_FALSE(scaling.skip().defined());
  CHECK_FALSE(scaling.applied_steps().defined());
  scaling.advance();
  CHECK(scaling.known_applied_steps() == 1);
  CHECK(scaling.scalars() == std::map<std::string, double>{{"applied_steps", 1}});
}

TEST_CASE("a restored scaling goes on on both sides", "[runtime][loss_scaling]") {
  LossScale policy;
  policy.kind = LossScaleKind::kDynamic;
  policy.initial = 65536;
  LossScaling first(policy, at::kCPU), second(policy, at::kCPU);
  for (float value : {kBroken, kClean, kBroken}) make_step(first, value);
  second.restore(first.scalars(), 3);
  CHECK(second.state() == first.state());
  CHECK(second.applied_steps().item<int64_t>() == 1);
  CHECK(make_step(second, kBroken).next_scale == make_step(first, kBroken).next_scale);
  LossScaling old(policy, at::kCPU);
  old.restore({}, 17);  // a checkpoint from before the scalars
  CHECK(old.known_applied_steps() == 17);
}
