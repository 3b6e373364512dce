#include "runtime/optim/flat_optimizer.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "runtime/optim/coefficients.hpp"

namespace {

using dslaunch::config::Optimizer;
using dslaunch::config::OptimizerType;
using dslaunch::runtime::SpanState;
using dslaunch::runtime::optim::FlatOptimizer;
using dslaunch::runtime::optim::OptimizerGroups;
using dslaunch::runtime::optim::StepInputs;
using dslaunch::runtime::optim::StepRates;

// One group for all.
std::unique_ptr<FlatOptimizer> make_flat_optimizer(const Optimizer& settings) {
  return dslaunch::runtime::optim::make_flat_optimizer(OptimizerGroups{{{"default", settings}}, {}, 0}, {});
}

struct NamedSettings {
  const char* name;
  Optimizer settings;
};

const std::vector<NamedSettings> kSettings = {
    {"AdamW", {.lr = 0.01, .weight_decay = 0.1}},
    {"Adam, L2",
     {.type = OptimizerType::kAdam,
      .lr = 0.01,
      .beta1 = 0.8,
      .beta2 = 0.95,
      .eps = 1e-6,
      .weight_decay = 0.1,
      .decoupled_weight_decay = false}},
    {"AdamW without bias correction", {.lr = 0.01, .beta2 = 0.99, .weight_decay = 0.1, .bias_correction = false}},
    {"SGD", {.type = OptimizerType::kSgd, .lr = 0.05, .weight_decay = 0.02}},
    {"SGD, momentum and dampening",
     {.type = OptimizerType::kSgd, .lr = 0.05, .weight_decay = 0.02, .momentum = 0.9, .dampening = 0.3}},
    {"SGD, Nesterov", {.type = OptimizerType::kSgd, .lr = 0.05, .momentum = 0.9, .nesterov = true}},
};

// Whose formulas trajectories_test.cpp compares with torch's.
const std::vector<NamedSettings> kFurtherSettings = {
    {"RMSprop", {.type = OptimizerType::kRmsprop, .lr = 0.01, .weight_decay = 0.1}},
    {"RMSprop, centered, momentum",
     {.type = OptimizerType::kRmsprop, .lr = 0.01, .eps = 1e-3, .momentum = 0.9, .centered = true}},
    {"NAdam", {.type = OptimizerType::kNadam, .lr = 0.01, .weight_decay = 0.1}},
    {"RAdam", {.type = OptimizerType::kRadam, .lr = 0.01, .beta2 = 0.9, .weight_decay = 0.1}},
    {"Adamax", {.type = OptimizerType::kAdamax, .lr = 0.01, .weight_decay = 0.1}},
    {"Adadelta", {.type = OptimizerType::kAdadelta, .lr = 1.0, .eps = 1e-6, .weight_decay = 0.1}},
    {"Rprop", {.type = OptimizerType::kRprop, .lr = 0.01, .min_step_size = 1e-3}},
    {"ASGD", {.type = OptimizerType::kAsgd, .lr = 0.01, .alpha = 0.75, .t0 = 2}},
};

std::vector<NamedSettings> all_settings() {
  std::vector<NamedSettings> all = kSettings;
  all.insert(all.end(), kFurtherSettings.begin(), kFurtherSettings.end());
  return all;
}

SpanState make_state(const FlatOptimizer& optimizer, const at::Tensor& start, at::ScalarType low = at::kFloat) {
  SpanState shard{.arrays = {.master = start.clone(), .gradient = at::zeros_like(start)}};
  if (low != at::kFloat) shard.arrays.low_precision = at::zeros(start.sizes(), start.options().dtype(low));
  for (size_t i = 0; i < optimizer.moment_names(0).size(); ++i) shard.arrays.moments.push_back(at::zeros_like(start));
  return shard;
}

at::Tensor start_values(int64_t count) {
  at::manual_seed(11);
  return at::randn({count}).add_(3.0);
}

// Of step `step`, for any slice of the flat parameters.
at::Tensor gradient_values(int64_t count, int64_t step) {
  return at::sin(at::arange(count, at::kDouble).mul(1.7).add(static_cast<double>(step))).to(at::kFloat);
}

// The formulas of torch.optim's documentation, in double.
at::Tensor oracle(const Optimizer& s, const at::Tensor& start, int64_t steps, double factor,
                  at::ScalarType gradient_type = at::kFloat) {
  at::Tensor p = start.to(at::kDouble);
  at::Tensor m = at::zeros_like(p), v = at::zeros_like(p), b;
  for (int64_t t = 1; t <= steps; ++t) {
    at::Tensor g = gradient_values(p.numel(), t).to(gradient_type).to(at::kDouble) * factor;
    if (s.type == OptimizerType::kSgd) {
      g = g + s.weight_decay * p;
      if (s.momentum != 0.0) {
        b = t == 1 ? g.clone() : s.momentum * b + (1 - s.dampening) * g;
        g = s.nesterov ? g + s.momentum * b : b;
      }
      p = p - s.lr * g;
      continue;
    }
    if (s.decoupled_weight_decay) {
      p = p - s.lr * s.weight_decay * p;
    } else {
      g = g + s.weight_decay * p;
    }
    m = s.beta1 * m + (1 - s.beta1) * g;
    v = s.beta2 * v + (1 - s.beta2) * g * g;
    const auto power = static_cast<double>(t);
    const double c1 = s.bias_correction ? 1 - std::pow(s.beta1, power) : 1.0;
    const double c2 = s.bias_correction ? 1 - std::pow(s.beta2, power) : 1.0;
    p = p - s.lr * (m / c1) / (at::sqrt(v / c2) + s.eps);
  }
  return p;
}

double worst_relative(const at::Tensor& got, const at::Tensor& expected) {
  return ((got.to(at::kDouble) - expected).abs() / expected.abs()).max().item<double>();
}

void run_steps(const FlatOptimizer& optimizer, SpanState& shard, double lr, int64_t steps,
               const at::Tensor& factor = {}) {
  for (int64_t t = 1; t <= steps; ++t) {
    shard.arrays.gradient.copy_(gradient_values(shard.arrays.master.numel(), t));
    optimizer.step({&shard, 1}, StepInputs{.rates = {{.step = t, .lr = lr}}, .gradient_factor = factor});
  }
}

SpanState copy_of(const SpanState& shard) {
  SpanState copy{.arrays = {.master = shard.arrays.master.clone(), .gradient = shard.arrays.gradient.clone()}};
  if (shard.arrays.low_precision.defined()) copy.arrays.low_precision = shard.arrays.low_precision.clone();
  for (const at::Tensor& moment : shard.arrays.moments) copy.arrays.moments.push_back(moment.clone());
  return copy;
}

bool same_state(const SpanState& a, const SpanState& b) {
  bool same = at::equal(a.arrays.master, b.arrays.master) && at::equal(a.arrays.low_precision, b.arrays.low_precision);
  for (size_t i = 0; i < a.arrays.moments.size(); ++i)
    same = same && at::equal(a.arrays.moments[i], b.arrays.moments[i]);
  return same;
}

struct ThreadCountGuard {
  int before = at::get_num_threads();
  ~ThreadCountGuard() { at::set_num_threads(before); }
};

}  // namespace

TEST_CASE("ten steps end where torch.optim's do", "[runtime][flat_optimizer]") {
  // Recorded with torch 2.11.0 in double precision: torch.optim.AdamW, Adam and SGD with the settings above, gradient
  // sin(1.7 i + t) rounded to double, ten steps.
  const std::vector<std::pair<size_t, std::vector<double>>> recorded = {
      {0,
       {1.44876522328, -0.733241862236, 0.527031606638, 1.96338413077, -1.26432782752, 0.906932196989, -2.94951575442}},
      {1,
       {1.4539491316, -0.732440436755, 0.523348660744, 1.94595093745, -1.2603307495, 0.884189846242, -2.95256696124}},
      {3,
       {1.41499316158, -0.663371474497, 0.544697375277, 1.88812689096, -1.26353321661, 0.964946156486, -2.96958031753}},
      {4,
       {1.11502414852, -0.62518255442, 0.797307480499, 1.75621048561, -1.47727783105, 1.09892972566, -2.70678985703}},
      {5, {1.09425827543, -0.48511976379, 0.8374850044, 1.64815359434, -1.49681805999, 1.2904487019, -2.86023849582}},
  };
  const at::Tensor start = at::tensor({1.5F, -0.75F, 0.5F, 2.0F, -1.25F, 0.875F, -3.0F});
  for (const auto& [index, expected] : recorded) {
    INFO(kSettings[index].name);
    const auto optimizer = make_flat_optimizer(kSettings[index].settings);
    SpanState shard = make_state(*optimizer, start);
    run_steps(*optimizer, shard, kSettings[index].settings.lr, 10);
    CHECK(worst_relative(shard.arrays.master, at::tensor(expected, at::kDouble)) < 1e-6);
  }
}

TEST_CASE("many elements follow the formulas in double precision", "[runtime][flat_optimizer]") {
  for (const auto& [name, settings] : kSettings) {
    INFO(name);
    const auto optimizer = make_flat_optimizer(settings);
    // Far enough from 0 that 0.1 p and the gradient never cancel: the sign of a near-zero sum is all that Adam keeps.
    const at::Tensor start = at::linspace(3.0, 5.0, 40'007);
    SpanState shard = make_state(*optimizer, start);
    run_steps(*optimizer, shard, settings.lr, 6, at::scalar_tensor(0.25F));
    CHECK(worst_relative(shard.arrays.master, oracle(settings, start, 6, 0.25)) < 1e-6);
  }
}

TEST_CASE("gradients in bf16 and fp16 follow the formulas too", "[runtime][flat_optimizer]") {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    for (const auto& [name, settings] : kSettings) {
      INFO(name << ", " << type);
      const auto optimizer = make_flat_optimizer(settings);
      const at::Tensor start = at::linspace(3.0, 5.0, 2003);
      SpanState shard = make_state(*optimizer, start, type);
      shard.arrays.gradient = shard.arrays.gradient.to(type);
      run_steps(*optimizer, shard, settings.lr, 6, at::scalar_tensor(0.25F));
      CHECK(worst_relative(shard.arrays.master, oracle(settings, start, 6, 0.25, type)) < 1e-6);
      CHECK(at::equal(shard.arrays.low_precision, shard.arrays.master.to(type)));
    }
  }
}

TEST_CASE("AdamW ends where LibTorch's fused AdamW does, with every type of gradient", "[runtime][flat_optimizer]") {
  constexpr int64_t kCount = 2003;
  for (const bool amsgrad : {false, true}) {
    for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      INFO("amsgrad " << amsgrad << ", " << type);
      const auto optimizer = make_flat_optimizer({.lr = 0.01, .weight_decay = 0.1, .amsgrad = amsgrad});
      const at::Tensor start = at::linspace(3.0, 5.0, kCount);
      SpanState shard = make_state(*optimizer, start);
      shard.arrays.gradient = shard.arrays.gradient.to(type);
      run_steps(*optimizer, shard, 0.01, 6);
      const std::vector<at::Tensor> p = {start.clone()}, m = {at::zeros_like(start)}, v = {at::zeros_like(start)},
                                    w = {at::zeros_like(start)}, steps = {at::zeros({}, at::kFloat)};
      for (int64_t t = 1; t <= 6; ++t) {
        const std::vector<at::Tensor> g = {gradient_values(kCount, t).to(type).to(at::kFloat)};
        steps[0].fill_(t);
        at::_fused_adamw_(p, g, m, v, amsgrad ? w : std::vector<at::Tensor>{}, steps, 0.01, 0.9, 0.999, 0.1, 1e-8,
                          amsgrad, /*maximize=*/false);
      }
      CHECK(worst_relative(shard.arrays.master, p[0].to(at::kDouble)) < 1e-6);
    }
  }
}

TEST_CASE("a shard may be cut anywhere", "[runtime][flat_optimizer]") {
  constexpr int64_t kCount = 50'021;
  for (const auto& [name, settings] : all_settings()) {
    INFO(name);
    const auto optimizer = make_flat_optimizer(settings);
    SpanState whole = make_state(*optimizer, start_values(kCount), at::kBFloat16);
    SpanState pieces = make_state(*optimizer, start_values(kCount), at::kBFloat16);
    for (int64_t t = 1; t <= 3; ++t) {
      const StepInputs inputs{.rates = {{.step = t, .lr = settings.lr}}, .gradient_factor = at::scalar_tensor(0.3F)};
      whole.arrays.gradient.copy_(gradient_values(kCount, t));
      pieces.arrays.gradient.copy_(whole.arrays.gradient);
      optimizer->step({&whole, 1}, inputs);
      int64_t begin = 0;
      for (const int64_t end : {int64_t{1}, int64_t{16'678}, int64_t{33'349}, kCount}) {
        SpanState piece{.arrays = {.master = pieces.arrays.master.slice(0, begin, end),
                                   .gradient = pieces.arrays.gradient.slice(0, begin, end),
                                   .low_precision = pieces.arrays.low_precision.slice(0, begin, end)}};
        for (const auto& moment : pieces.arrays.moments) piece.arrays.moments.push_back(moment.slice(0, begin, end));
        optimizer->step({&piece, 1}, inputs);
        begin = end;
      }
    }
    CHECK(at::equal(whole.arrays.master, pieces.arrays.master));
    CHECK(at::equal(whole.arrays.low_precision, pieces.arrays.low_precision));
    for (size_t i = 0; i < whole.arrays.moments.size(); ++i)
      CHECK(at::equal(whole.arrays.moments[i], pieces.arrays.moments[i]));
  }
}

TEST_CASE("the number of threads does not show in the result", "[runtime][flat_optimizer]") {
  const ThreadCountGuard guard;
  const auto optimizer = make_flat_optimizer(kSettings[0].settings);
  at::set_num_threads(1);
  SpanState expected = make_state(*optimizer, start_values(200'003));
  run_steps(*optimizer, expected, 0.01, 3);
  for (const int threads : {2, 3, 7}) {
    at::set_num_threads(threads);
    SpanState shard = make_state(*optimizer, start_values(200'003));
    run_steps(*optimizer, shard, 0.01, 3);
    CHECK(at::equal(shard.arrays.master, expected.arrays.master));
  }
}

TEST_CASE("the low-precision copy is the rounded master", "[runtime][flat_optimizer]") {
  for (const auto& [name, settings] : all_settings()) {
    for (const auto type : {at::kBFloat16, at::kHalf}) {
      INFO(name);
      const auto optimizer = make_flat_optimizer(settings);
      SpanState shard = make_state(*optimizer, start_values(1003), type);
      run_steps(*optimizer, shard, settings.lr, 2);
      CHECK(at::equal(shard.arrays.low_precision, shard.arrays.master.to(type)));
    }
  }
}

TEST_CASE("the gradient factor multiplies the gradient, and the gradient stays as it was",
          "[runtime][flat_optimizer]") {
  const auto optimizer = make_flat_optimizer(kSettings[0].settings);
  SpanState scaled = make_state(*optimizer, start_values(100));
  SpanState plain = make_state(*optimizer, start_values(100));
  scaled.arrays.gradient.copy_(gradient_values(100, 1));
  plain.arrays.gradient.copy_(gradient_values(100, 1).mul(0.5));
  optimizer->step({&scaled, 1}, {.rates = {{.step = 1, .lr = 0.1}}, .gradient_factor = at::scalar_tensor(0.5F)});
  optimizer->step({&plain, 1}, {.rates = {{.step = 1, .lr = 0.1}}});
  CHECK(at::equal(scaled.arrays.master, plain.arrays.master));
  CHECK(at::equal(scaled.arrays.gradient, gradient_values(100, 1)));
}

TEST_CASE("a skipped step writes nothing, and one that is not skipped all of it", "[runtime][flat_optimizer]") {
  for (const auto& [name, settings] : all_settings()) {
    INFO(name);
    const auto optimizer = make_flat_optimizer(settings);
    SpanState shard = make_state(*optimizer, start_values(1003), at::kBFloat16);
    run_steps(*optimizer, shard, settings.lr, 2);
    SpanState before = copy_of(shard), unsteered = copy_of(shard);
    StepInputs inputs{.rates = {{.step = 3, .lr = settings.lr}}, .skip = at::scalar_tensor(1.0F)};
    // As it comes with an overflow.
    shard.arrays.gradient.fill_(std::numeric_limits<float>::quiet_NaN());
    optimizer->step({&shard, 1}, inputs);
    CHECK(same_state(shard, before));
    shard.arrays.gradient.copy_(unsteered.arrays.gradient);
    inputs.skip = at::scalar_tensor(0.0F);
    optimizer->step({&shard, 1}, inputs);
    optimizer->step({&unsteered, 1}, {.rates = inputs.rates});
    CHECK(same_state(shard, unsteered));
    CHECK_FALSE(same_state(shard, before));
  }
}

TEST_CASE("the count of applied steps picks the rates of its step", "[runtime][flat_optimizer]") {
  for (const auto& [name, settings] : all_settings()) {
    INFO(name);
    const auto optimizer = make_flat_optimizer(settings);
    for (int64_t applied = 4; applied < 7; ++applied) {
      SpanState told = make_state(*optimizer, start_values(1003), at::kHalf);
      run_steps(*optimizer, told, settings.lr, 4);
      SpanState picked = copy_of(told);
      const std::vector<StepRates> rates = {{.step = 5, .lr = 0.1}, {.step = 6, .lr = 0.2}, {.step = 7, .lr = 0.3}};
      optimizer->step({&told, 1}, {.rates = {rates[static_cast<size_t>(applied - 4)]}});
      optimizer->step({&picked, 1}, {.rates = rates, .applied_steps = at::scalar_tensor(applied, at::kLong)});
      CHECK(same_state(picked, told));
    }
  }
}

TEST_CASE("a count of applied steps without rates of its own is refused", "[runtime][flat_optimizer]") {
  const auto optimizer = make_flat_optimizer(kSettings[0].settings);
  SpanState shard = make_state(*optimizer, at::zeros({10}));
  const std::vector<StepRates> rates = {{.step = 5, .lr = 0.1}, {.step = 6, .lr = 0.2}};
  for (const int64_t applied : {3, 6}) {
    CHECK_THROWS_AS(
        optimizer->step({&shard, 1}, {.rates = rates, .applied_steps = at::scalar_tensor(applied, at::kLong)}),
        dslaunch::InternalError);
  }
  CHECK_THROWS_AS(optimizer->step({&shard, 1}, {.rates = rates}), dslaunch::InternalError);
  CHECK_THROWS_AS(optimizer->step({&shard, 1}, {.rates = {}}), dslaunch::InternalError);
}

TEST_CASE("moments carry the names of torch's state", "[runtime][flat_optimizer]") {
  CHECK(make_flat_optimizer(kSettings[0].settings)->moment_names(0) ==
        std::vector<std::string>{"exp_avg", "exp_avg_sq"});
  CHECK(make_flat_optimizer(kSettings[3].settings)->moment_names(0).empty());
  CHECK(make_flat_optimizer(kSettings[4].settings)->moment_names(0) == std::vector<std::string>{"momentum"});
}

TEST_CASE("initial values of moments are the optimizer's, of each group", "[runtime][flat_optimizer]") {
  const Optimizer first{.type = OptimizerType::kRprop, .lr = 0.5}, second{.type = OptimizerType::kRprop, .lr = 0.25};
  const auto rprop = dslaunch::runtime::optim::make_flat_optimizer(
      OptimizerGroups{{{"first", first}, {"default", second}}, {}, 1}, {});
  CHECK(rprop->moment_names(0) == std::vector<std::string>{"prev", "step_size"});
  CHECK(rprop->initial_moment(0, 0) == 0.0);
  CHECK(rprop->initial_moment(0, 1) == 0.5);
  CHECK(rprop->initial_moment(1, 1) == 0.25);
  const auto adagrad = make_flat_optimizer({.type = OptimizerType::kAdagrad, .initial_accumulator_value = 0.1});
  CHECK(adagrad->initial_moment(0, 0) == 0.1);
}

TEST_CASE("ASGD's ax is the parameter up to step t0 + 1, then the mean of the steps behind it",
          "[runtime][flat_optimizer]") {
  constexpr int64_t kCount = 101, kFirst = 4;
  const auto optimizer = make_flat_optimizer({.type = OptimizerType::kAsgd, .lr = 0.05, .alpha = 0.75, .t0 = kFirst});
  SpanState shard = make_state(*optimizer, start_values(kCount));
  at::Tensor sum;
  for (int64_t t = 1; t <= 12; ++t) {
    shard.arrays.gradient.copy_(gradient_values(kCount, t));
    optimizer->step({&shard, 1}, {.rates = {{.step = t, .lr = 0.05}}});
    const at::Tensor p = shard.arrays.master.to(at::kDouble);
    if (t <= kFirst + 2) {  // torch takes the share of step t into account at step t + 1
      CHECK(at::equal(shard.arrays.moments[0], shard.arrays.master));
      sum = p;
      continue;
    }
    sum = sum + p;
    CHECK(at::allclose(shard.arrays.moments[0].to(at::kDouble), sum / static_cast<double>(t - kFirst - 1), 1e-6));
  }
}

TEST_CASE("NAdam's product of momenta is that of its factors", "[runtime][flat_optimizer]") {
  for (const double decay : {0.0, 1e-6, 4e-3, 0.5}) {
    const Optimizer settings{.type = OptimizerType::kNadam, .momentum_decay = decay};
    double product = 1.0;
    for (int64_t t = 1; t <= 2000; ++t) {
      const auto momentum = [&](int64_t step) {
        return 0.9 * (1 - 0.5 * std::pow(0.96, decay * static_cast<double>(step)));
      };
      product *= momentum(t);
      if (t > 3 && t % 97 != 0) continue;
      const auto c = dslaunch::runtime::optim::nadam_coefficients(settings, {.lr = 1.0}, t);
      INFO("decay " << decay << ", step " << t);
      CHECK(c.gradient_size == Approx((1 - momentum(t)) / (1 - product)).epsilon(1e-7));
      CHECK(c.moment_size == Approx(momentum(t + 1) / (1 - product * momentum(t + 1))).epsilon(1e-7));
    }
  }
}

TEST_CASE("an empty shard is a step without work", "[runtime][flat_optimizer]") {
  for (const auto& [name, settings] : all_settings()) {
    const auto optimizer = make_flat_optimizer(settings);
    SpanState shard = make_state(*optimizer, at::zeros({0}), at::kBFloat16);
    CHECK_NOTHROW(optimizer->step({&shard, 1}, {.rates = {{.step = 1, .lr = 0.1}}}));
  }
}

TEST_CASE("tensors that do not fit together are refused", "[runtime][flat_optimizer]") {
  const auto optimizer = make_flat_optimizer(kSettings[0].settings);
  const StepInputs inputs{.rates = {{.step = 1, .lr = 0.1}}};
  const auto refused = [&](auto&& spoil) {
    SpanState shard = make_state(*optimizer, at::zeros({10}), at::kBFloat16);
    spoil(shard);
    CHECK_THROWS_AS(optimizer->step({&shard, 1}, inputs), dslaunch::InternalError);
  };
  refused([](SpanState& s) { s.arrays.gradient = at::zeros({9}); });
  refused([](SpanState& s) { s.arrays.gradient = at::zeros({10}, at::kDouble); });
  refused([](SpanState& s) { s.arrays.gradient = at::zeros({20}).slice(0, 0, 20, 2); });
  refused([](SpanState& s) { s.arrays.moments.pop_back(); });
  refused([](SpanState& s) { s.arrays.moments[1] = at::Tensor(); });
  refused([](SpanState& s) { s.arrays.low_precision = at::zeros({10}, at::kInt); });
  std::vector<SpanState> on_two_devices(2, make_state(*optimizer, at::zeros({10})));
  for (auto* array : {&on_two_devices[1].arrays.master, &on_two_devices[1].arrays.gradient}) {
    *array = array->to(at::kMeta);
  }
  for (auto& moment : on_two_devices[1].arrays.moments) moment = moment.to(at::kMeta);
  CHECK_THROWS_AS(optimizer->step(on_two_devices, inputs), dslaunch::InternalError);
  SpanState shard = make_state(*optimizer, at::zeros({10}));
  CHECK_THROWS_AS(optimizer->step({&shard, 1}, {.rates = {{.step = 0, .lr = 0.1}}}), dslaunch::InternalError);
}

TEST_CASE("Nesterov momentum without momentum is the user's mistake", "[runtime][flat_optimizer]") {
  const Optimizer no_momentum{.type = OptimizerType::kSgd, .nesterov = true};
  const Optimizer dampened{.type = OptimizerType::kSgd, .momentum = 0.9, .dampening = 0.1, .nesterov = true};
  CHECK_THROWS_AS(make_flat_optimizer(no_momentum), dslaunch::UserError);
  CHECK_THROWS_WITH(make_flat_optimizer(dampened), Catch::Matchers::Contains("dampening is 0.1"));
}
