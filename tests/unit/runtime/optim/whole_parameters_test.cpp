// Lamb, Muon, Adafactor and AdamW8bit: what the trajectories do not show.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/optim/algorithms.hpp"
#include "runtime/optim/moments.hpp"

namespace {

using namespace dslaunch::runtime;
using dslaunch::config::Optimizer;
using dslaunch::config::OptimizerType;

// One unit of a matrix and a vector on one rank.
struct Small {
  ParameterTable table;
  optim::OptimizerGroups groups;
  std::vector<FlatGroup> layout;
  std::unique_ptr<optim::FlatOptimizer> optimizer;
  std::vector<SpanState> runs;

  explicit Small(const Optimizer& settings, at::ScalarType low = at::kBFloat16) {
    table.units = {{"", {0, 1}}};
    table.parameters.resize(2);
    table.parameters[0].name = "fc.weight";
    table.parameters[0].shape = {6, 4};
    table.parameters[0].numel = 24;
    table.parameters[1].name = "fc.bias";
    table.parameters[1].shape = {5};
    table.parameters[1].numel = 5;
    groups = optim::plan_optimizer_groups(settings, table);
    layout =
        plan_flat_groups(table, {.compute_dtypes = {at::kFloat, at::kFloat}, .optimizer_groups = groups.of_parameter});
    optimizer = optim::make_flat_optimizer(groups, {&table, &layout, nullptr});
    at::manual_seed(3);
    StateArrays whole;
    whole.master = at::randn({layout[0].padded_numel});
    whole.gradient = at::randn({layout[0].padded_numel});
    whole.low_precision = at::zeros({layout[0].padded_numel}, low);
    for (const auto& span : plan_spans(layout[0], 0, {0, layout[0].padded_numel}, groups.of_parameter)) {
      runs.push_back({span, narrow(whole, span.range.begin, span.numel())});
      optim::allocate_moments(*optimizer, runs.back());
    }
    optimizer->allocate_own_state(runs);
  }

  void step(optim::StepInputs inputs) { optimizer->step(runs, inputs); }

  std::vector<at::Tensor> state() const {
    std::vector<at::Tensor> out;
    for (const auto& run : runs) {
      out.push_back(run.arrays.master.clone());
      out.push_back(run.arrays.low_precision.clone());
      for (const auto& moment : run.arrays.moments) out.push_back(moment.clone());
    }
    for (const auto& own : optimizer->own_state()) out.push_back(own.values.clone());
    return out;
  }
};

bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!at::equal(a[i], b[i])) return false;
  }
  return true;
}

const std::vector<Optimizer> kSettings = {
    {.type = OptimizerType::kLamb, .weight_decay = 0.01},
    {.type = OptimizerType::kMuon, .weight_decay = 0.01, .momentum = 0.95},
    {.type = OptimizerType::kAdafactor, .weight_decay = 0.01},
    {.type = OptimizerType::kAdamW8bit, .weight_decay = 0.01, .min_8bit_size = 20},
};

}  // namespace

TEST_CASE("a skipped step over whole parameters writes nothing", "[runtime][lamb][muon]") {
  for (const auto& settings : kSettings) {
    INFO("type " << static_cast<int>(settings.type));
    Small skipped(settings), plain(settings);
    skipped.step({.rates = {{.step = 1, .lr = 0.1}}});
    plain.step({.rates = {{.step = 1, .lr = 0.1}}});
    const auto before = skipped.state();
    const at::Tensor gradient = skipped.runs[0].arrays.gradient.clone();
    skipped.runs[0].arrays.gradient.fill_(std::numeric_limits<float>::infinity());  // as it comes with an overflow
    skipped.step({.rates = {{.step = 2, .lr = 0.1}}, .skip = at::scalar_tensor(1.0F)});
    CHECK(same(skipped.state(), before));
    skipped.runs[0].arrays.gradient.copy_(gradient);
    skipped.step({.rates = {{.step = 2, .lr = 0.1}}, .skip = at::scalar_tensor(0.0F)});
    plain.step({.rates = {{.step = 2, .lr = 0.1}}});
    CHECK(same(skipped.state(), plain.state()));
    CHECK_FALSE(same(skipped.state(), before));
  }
}

TEST_CASE("steps over whole parameters compute with the values of gradients in 16 bits, in fp32",
          "[runtime][lamb][muon]") {
  for (const auto& settings : kSettings) {
    for (const auto type : {at::kBFloat16, at::kHalf}) {
      INFO("type " << static_cast<int>(settings.type) << ", " << type);
      Small half(settings), widened(settings);
      for (auto& run : half.runs) run.arrays.gradient = run.arrays.gradient.to(type);
      for (auto& run : widened.runs) run.arrays.gradient = run.arrays.gradient.to(type).to(at::kFloat);
      for (auto* small : {&half, &widened})
        small->step({.rates = {{.step = 1, .lr = 0.1}}, .gradient_factor = at::scalar_tensor(0.3F)});
      CHECK(same(half.state(), widened.state()));
    }
  }
}

TEST_CASE("Lamb and Muon pick the rates of the count of applied steps", "[runtime][lamb][muon]") {
  const std::vector<optim::StepRates> rates = {{.step = 5, .lr = 0.1}, {.step = 6, .lr = 0.2}};
  for (const auto& settings : kSettings) {
    for (const int64_t applied : {4, 5}) {
      Small told(settings), picked(settings);
      told.step({.rates = {rates[static_cast<size_t>(applied - 4)]}, .gradient_factor = at::scalar_tensor(0.3F)});
      picked.step({.rates = rates,
                   .applied_steps = at::scalar_tensor(applied, at::kLong),
                   .gradient_factor = at::scalar_tensor(0.3F)});
      CHECK(same(picked.state(), told.state()));
    }
  }
}

TEST_CASE("the low-precision copy is the rounded master after Lamb and Muon", "[runtime][lamb][muon]") {
  for (const auto& settings : kSettings) {
    for (const auto type : {at::kBFloat16, at::kHalf}) {
      Small small(settings, type);
      small.step({.rates = {{.step = 1, .lr = 0.1}}});
      for (const auto& run : small.runs) {
        const int64_t real = std::min<int64_t>(run.span.range.end, 29) - run.span.range.begin;  // padding is nobody's
        CHECK(at::equal(run.arrays.low_precision.narrow(0, 0, real), run.arrays.master.narrow(0, 0, real).to(type)));
      }
    }
  }
}

TEST_CASE("Lamb moves a parameter by its own size", "[runtime][lamb]") {
  // Without decay and correction the first update of a constant gradient is the same number everywhere, so the ratio
  // makes the step lr * |p|, within the bounds.
  for (const bool inside : {false, true}) {
    Optimizer settings{.type = OptimizerType::kLamb, .eps = 1e-6, .bias_correction = false, .eps_inside_sqrt = inside};
    settings.max_coeff = 1e9;
    settings.min_coeff = 0.0;
    Small small(settings);
    const at::Tensor before = small.runs[0].arrays.master.narrow(0, 0, 24).to(at::kDouble);
    small.runs[0].arrays.gradient.fill_(0.5);
    small.step({.rates = {{.step = 1, .lr = 0.01}}});
    const at::Tensor moved = before - small.runs[0].arrays.master.narrow(0, 0, 24).to(at::kDouble);
    const double expected = 0.01 * before.norm().item<double>() / std::sqrt(24.0);
    CHECK((moved - expected).abs().max().item<double>() < 1e-6);
  }
}

TEST_CASE("eps stands inside or outside Lamb's square root", "[runtime][lamb]") {
  // With bounds of 1 the step is lr times the update itself: m / (sqrt(v) + eps) or m / sqrt(v + eps).
  for (const bool inside : {false, true}) {
    Optimizer settings{.type = OptimizerType::kLamb, .eps = 0.01, .bias_correction = false, .eps_inside_sqrt = inside};
    settings.max_coeff = settings.min_coeff = 1.0;
    Small small(settings);
    const double before = small.runs[0].arrays.master[0].item<double>();
    small.runs[0].arrays.gradient.fill_(2.0);
    small.step({.rates = {{.step = 1, .lr = 0.1}}});
    const double m = 0.1 * 2.0, v = 0.001 * 4.0;
    const double update = inside ? m / std::sqrt(v + 0.01) : m / (std::sqrt(v) + 0.01);
    CHECK(before - small.runs[0].arrays.master[0].item<double>() == Approx(0.1 * update).epsilon(1e-5));
  }
}

TEST_CASE("a parameter of zeros, and one that does not move, keep Lamb's ratio at 1", "[runtime][lamb]") {
  Optimizer settings{.type = OptimizerType::kLamb, .bias_correction = false};
  Small small(settings);
  small.runs[0].arrays.master.zero_();
  small.runs[0].arrays.gradient.fill_(1.0);
  small.step({.rates = {{.step = 1, .lr = 0.1}}});
  CHECK(small.runs[0].arrays.master[0].item<double>() == Approx(-0.1 * 0.1 / std::sqrt(0.001)).epsilon(1e-5));
  Small still(settings);
  const auto before = still.runs[0].arrays.master.clone();
  still.runs[0].arrays.gradient.zero_();
  still.step({.rates = {{.step = 1, .lr = 0.1}}});
  CHECK(at::equal(still.runs[0].arrays.master, before));
}

TEST_CASE("Muon's iteration brings singular values near one and scales tall matrices", "[runtime][muon]") {
  at::manual_seed(5);
  for (const auto& shape : std::vector<std::vector<int64_t>>{{16, 16}, {8, 24}, {24, 8}, {2, 12, 6}, {10, 2, 3, 2}}) {
    const at::Tensor update = at::randn(shape).to(at::kBFloat16);
    const at::Tensor result = optim::orthogonalised(update).to(at::kDouble);
    const double scale =
        std::sqrt(std::max(1.0, static_cast<double>(shape[shape.size() - 2]) / static_cast<double>(shape.back())));
    const at::Tensor matrices = result / scale;
    const at::Tensor gram = matrices.size(-2) < matrices.size(-1) ? at::matmul(matrices, matrices.mT())
                                                                  : at::matmul(matrices.mT(), matrices);
    const at::Tensor trace = gram.diagonal(0, -2, -1).sum(-1) / static_cast<double>(gram.size(-1));
    // The mean of the squared singular values; the iteration leaves each between about 0.5 and 1.5.
    CHECK(trace.min().item<double>() > 0.4);
    CHECK(trace.max().item<double>() < 1.6);
    CHECK(result.numel() == update.numel());
  }
}

TEST_CASE("the moments of Lamb and Muon carry the names of DeepSpeed's state", "[runtime][lamb][muon]") {
  using Names = std::vector<std::string>;
  CHECK(Small(kSettings[0]).optimizer->moment_names(0) == Names{"exp_avg", "exp_avg_sq"});
  const Small muon(kSettings[1]);
  CHECK(muon.optimizer->moment_names(0) == Names{"momentum_buffer"});
  CHECK(muon.optimizer->moment_names(1) == Names{"exp_avg", "exp_avg_sq"});
  REQUIRE(muon.runs.size() == 2);
  CHECK(muon.runs[0].arrays.moments.size() == 1);
  CHECK(muon.runs[1].arrays.moments.size() == 2);
}

TEST_CASE("own state that is saved and restored gives the same steps", "[runtime][optim]") {
  for (const auto type : {OptimizerType::kAdafactor, OptimizerType::kAdamW8bit}) {
    const Optimizer settings{.type = type, .min_8bit_size = 20};
    Small whole(settings), resumed(settings);
    whole.step({.rates = {{.step = 1, .lr = 0.1}}});
    const auto saved = whole.optimizer->own_state();
    resumed.optimizer->restore_own_state(
        [&](int parameter, const std::string& name, int64_t begin, const at::Tensor& out) {
          for (const auto& own : saved) {
            if (own.parameter == parameter && own.name == name)
              out.copy_(own.values.narrow(0, begin - own.begin, out.numel()));
          }
          return true;
        });
    for (size_t i = 0; i < whole.runs.size(); ++i) {
      resumed.runs[i].arrays.master.copy_(whole.runs[i].arrays.master);
    }
    for (auto* small : {&whole, &resumed}) small->step({.rates = {{.step = 2, .lr = 0.1}}});
    CHECK(same(whole.state(), resumed.state()));
  }
}

// Least squares with noise in the gradient: the error falls to what the noise leaves of it, by more than four decades.
TEST_CASE("AdamW8bit converges as AdamW does", "[runtime][adam_8bit]") {
  at::manual_seed(5);
  const at::Tensor x = at::randn({128, 6}), target = at::randn({6, 4});
  const auto loss_after = [&](OptimizerType type) {
    Small small({.type = type, .weight_decay = 0.0, .min_8bit_size = 0});
    at::manual_seed(6);
    at::Tensor& master = small.runs[0].arrays.master;
    for (int64_t t = 1; t <= 400; ++t) {
      const at::Tensor w = master.narrow(0, 0, 24).view({6, 4});
      const at::Tensor error = x.matmul(w - target) + at::randn({128, 4}) * 0.1;
      small.runs[0].arrays.gradient.zero_();
      small.runs[0].arrays.gradient.narrow(0, 0, 24).copy_((x.t().matmul(error) / 128).flatten());
      small.step({.rates = {{.step = t, .lr = 0.02}}});
    }
    return (master.narrow(0, 0, 24).view({6, 4}) - target).square().mean().item<double>();
  };
  const double start = target.square().mean().item<double>();
  const double whole = loss_after(OptimizerType::kAdamW), coded = loss_after(OptimizerType::kAdamW8bit);
  INFO("start " << start << ", AdamW " << whole << ", AdamW8bit " << coded);
  CHECK(whole < 1e-4 * start);
  CHECK(coded < 1e-4 * start);
}
