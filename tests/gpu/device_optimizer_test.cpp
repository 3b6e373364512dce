// The optimizers and the norm on CUDA tensors, through the module, against the same on host tensors, whose own oracle
// is in tests/unit/runtime/optim. Without a CUDA device they are skipped.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/optim/flat_optimizer.hpp"
#include "runtime/optim/gradient_norm.hpp"
#include "runtime/optim/moments.hpp"
#include "support/cuda_device.hpp"

namespace {

using dslaunch::config::Optimizer;
using dslaunch::config::OptimizerType;
using dslaunch::runtime::SpanState;
using dslaunch::runtime::StateArrays;
using dslaunch::runtime::optim::clip_by_norm;
using dslaunch::runtime::optim::FlatOptimizer;
using dslaunch::runtime::optim::OptimizerGroups;
using dslaunch::runtime::optim::StepRates;
using dslaunch::runtime::optim::sum_of_squares;

// One group for all.
std::unique_ptr<FlatOptimizer> make_flat_optimizer(const Optimizer& settings) {
  return dslaunch::runtime::optim::make_flat_optimizer(OptimizerGroups{{{"default", settings}}, {}, 0}, {});
}

const std::vector<Optimizer> kSettings = {
    {.weight_decay = 0.1},
    {.type = OptimizerType::kAdam, .weight_decay = 0.1, .decoupled_weight_decay = false},
    {.type = OptimizerType::kSgd, .weight_decay = 0.02},
    {.type = OptimizerType::kSgd, .momentum = 0.9, .dampening = 0.3},
    {.type = OptimizerType::kSgd, .momentum = 0.9, .nesterov = true},
    {.weight_decay = 0.1, .amsgrad = true, .maximize = true},
    {.type = OptimizerType::kLion, .weight_decay = 0.1},
    {.type = OptimizerType::kAdagrad, .weight_decay = 0.1, .maximize = true, .initial_accumulator_value = 0.1},
    {.type = OptimizerType::kRmsprop, .weight_decay = 0.1, .maximize = true},
    {.type = OptimizerType::kRmsprop, .momentum = 0.9},
    {.type = OptimizerType::kRmsprop, .eps = 1e-3, .centered = true},
    {.type = OptimizerType::kRmsprop, .eps = 1e-3, .momentum = 0.9, .centered = true},
    {.type = OptimizerType::kNadam, .weight_decay = 0.1, .decoupled_weight_decay = false},
    {.type = OptimizerType::kRadam, .beta2 = 0.9, .weight_decay = 0.1},
    {.type = OptimizerType::kAdamax, .weight_decay = 0.1},
    {.type = OptimizerType::kAdadelta, .eps = 1e-6, .weight_decay = 0.1},
    {.type = OptimizerType::kRprop, .min_step_size = 1e-3},
    {.type = OptimizerType::kAsgd, .alpha = 0.75, .t0 = 1},
};

at::Tensor normal(int64_t count, uint64_t seed) {
  at::manual_seed(seed);
  return at::randn({count}, at::kFloat);
}

// The last `count` elements of a longer tensor, so that they begin off a 16-byte boundary.
at::Tensor on_device(const at::Tensor& host) {
  const at::Tensor longer = at::zeros({host.numel() + 3}, host.options().device(at::kCUDA));
  at::Tensor tail = longer.slice(0, 3);
  tail.copy_(host);
  return tail;
}

}  // namespace

TEST_CASE("three steps on the device give the host's bits", "[gpu][flat_optimizer]") {
  if (!dslaunch::test::has_device()) return;
  for (const auto& settings : kSettings) {
    for (const int64_t count : {0, 1, 33, 100'002, 100'003}) {
      const auto gradient_type = count % 2 == 0 ? at::kFloat : at::kBFloat16;
      INFO("type " << static_cast<int>(settings.type) << ", count " << count);
      const auto optimizer = make_flat_optimizer(settings);
      SpanState host{.arrays = {.master = normal(count, 1),
                                .gradient = at::zeros({count}, gradient_type),
                                .low_precision = at::zeros({count}, at::kBFloat16)}};
      SpanState device{.arrays = {.master = on_device(host.arrays.master),
                                  .gradient = on_device(host.arrays.gradient),
                                  .low_precision = on_device(host.arrays.low_precision)}};
      for (size_t i = 0; i < optimizer->moment_names(0).size(); ++i) {
        host.arrays.moments.push_back(at::zeros({count}));
        device.arrays.moments.push_back(on_device(host.arrays.moments.back()));
      }
      const at::Tensor factor = at::scalar_tensor(0.3F);
      for (int64_t step = 1; step <= 3; ++step) {
        host.arrays.gradient.copy_(normal(count, 100 + static_cast<uint64_t>(step)));
        device.arrays.gradient.copy_(host.arrays.gradient);
        optimizer->step({&host, 1}, {.rates = {{.step = step, .lr = 0.01}}, .gradient_factor = factor});
        optimizer->step({&device, 1}, {.rates = {{.step = step, .lr = 0.01}}, .gradient_factor = factor.to(at::kCUDA)});
      }
      CHECK(at::equal(device.arrays.master.cpu(), host.arrays.master));
      CHECK(at::equal(device.arrays.low_precision.cpu(), host.arrays.low_precision));
      for (size_t i = 0; i < host.arrays.moments.size(); ++i)
        CHECK(at::equal(device.arrays.moments[i].cpu(), host.arrays.moments[i]));
    }
  }
}

TEST_CASE("the device skips a step and picks the rates of its own count", "[gpu][flat_optimizer]") {
  if (!dslaunch::test::has_device()) return;
  for (const auto& settings : kSettings) {
    INFO("type " << static_cast<int>(settings.type));
    const auto optimizer = make_flat_optimizer(settings);
    SpanState host{.arrays = {.master = normal(1003, 1), .gradient = normal(1003, 2)}};
    SpanState device{.arrays = {.master = on_device(host.arrays.master), .gradient = on_device(host.arrays.gradient)}};
    for (size_t i = 0; i < optimizer->moment_names(0).size(); ++i) {
      host.arrays.moments.push_back(at::zeros({1003}));
      device.arrays.moments.push_back(on_device(host.arrays.moments.back()));
    }
    const std::vector<StepRates> rates = {{.step = 1, .lr = 0.1}, {.step = 2, .lr = 0.2}, {.step = 3, .lr = 0.3}};
    const at::Tensor applied = at::zeros({}, at::TensorOptions().dtype(at::kLong).device(at::kCUDA));
    for (int64_t issued = 0; issued < 4; ++issued) {
      const bool skipped = issued == 1;
      const at::Tensor skip = at::scalar_tensor(skipped ? 1.0F : 0.0F).to(at::kCUDA);
      optimizer->step({&device, 1}, {.rates = rates, .applied_steps = applied, .skip = skip});
      if (skipped) continue;
      optimizer->step({&host, 1}, {.rates = {rates[static_cast<size_t>(issued == 0 ? 0 : issued - 1)]}});
      applied.add_(1);
    }
    CHECK(at::equal(device.arrays.master.cpu(), host.arrays.master));
    for (size_t i = 0; i < host.arrays.moments.size(); ++i)
      CHECK(at::equal(device.arrays.moments[i].cpu(), host.arrays.moments[i]));
  }
}

// Lamb, Adafactor, AdamW8bit and Muon look at whole parameters: a matrix and a vector in one flat group, on host and
// device alike.
struct Whole {
  dslaunch::runtime::ParameterTable table;
  OptimizerGroups groups;
  std::vector<dslaunch::runtime::FlatGroup> layout;
  std::unique_ptr<FlatOptimizer> optimizer;

  explicit Whole(const Optimizer& settings) {
    table.units = {{"", {0, 1}}};
    table.parameters.resize(2);
    table.parameters[0].name = "fc.weight";
    table.parameters[0].shape = {96, 70};
    table.parameters[0].numel = 96 * 70;
    table.parameters[1].name = "fc.bias";
    table.parameters[1].shape = {37};
    table.parameters[1].numel = 37;
    groups = dslaunch::runtime::optim::plan_optimizer_groups(settings, table);
    layout = dslaunch::runtime::plan_flat_groups(
        table, {.compute_dtypes = {at::kFloat, at::kFloat}, .optimizer_groups = groups.of_parameter});
    optimizer = dslaunch::runtime::optim::make_flat_optimizer(groups, {&table, &layout, nullptr});
  }

  std::vector<SpanState> runs_on(at::Device device, at::ScalarType gradient_type) const {
    StateArrays whole = dslaunch::runtime::arrays_of_parameter(normal(layout[0].padded_numel, 1).to(device), device);
    whole.gradient = at::zeros_like(whole.master, gradient_type);
    whole.low_precision = whole.master.to(at::kBFloat16);
    std::vector<SpanState> runs;
    for (const auto& span :
         dslaunch::runtime::plan_spans(layout[0], 0, {0, layout[0].padded_numel}, groups.of_parameter)) {
      runs.push_back({span, dslaunch::runtime::narrow(whole, span.range.begin, span.numel())});
      dslaunch::runtime::optim::allocate_moments(*optimizer, runs.back());
    }
    optimizer->allocate_own_state(runs);
    return runs;
  }
};

TEST_CASE("Lamb, Adafactor, AdamW8bit and Muon on the device follow the host, skipped steps and chosen rates included",
          "[gpu][flat_optimizer]") {
  if (!dslaunch::test::has_device()) return;
  // Lamb's sums are added in another order, which shows in the last bit of a ratio at most; Muon multiplies in bf16.
  const Optimizer lamb{.type = OptimizerType::kLamb, .weight_decay = 0.01};
  const Optimizer adafactor{.type = OptimizerType::kAdafactor, .weight_decay = 0.01};
  const Optimizer eight_bits{.type = OptimizerType::kAdamW8bit, .weight_decay = 0.01};
  const Optimizer muon{.type = OptimizerType::kMuon, .weight_decay = 0.01, .momentum = 0.95};
  const std::vector<std::tuple<Optimizer, at::ScalarType, double>> cases = {
      {lamb, at::kFloat, 1e-6},         {lamb, at::kBFloat16, 1e-6},    {adafactor, at::kFloat, 1e-6},
      {adafactor, at::kBFloat16, 1e-6}, {eight_bits, at::kFloat, 1e-6}, {eight_bits, at::kBFloat16, 1e-6},
      {muon, at::kFloat, 0.02},         {muon, at::kBFloat16, 0.02}};
  for (const auto& [settings, gradient_type, bound] : cases) {
    INFO("type " << static_cast<int>(settings.type) << ", gradients in " << gradient_type);
    const Whole on_host(settings), on_gpu(settings);
    auto host = on_host.runs_on(at::kCPU, gradient_type);
    auto device = on_gpu.runs_on(at::Device(at::kCUDA, 0), gradient_type);
    const at::Tensor applied = at::zeros({}, at::TensorOptions().dtype(at::kLong).device(at::kCUDA));
    const std::vector<StepRates> rates = {{.step = 1, .lr = 0.01}, {.step = 2, .lr = 0.02}, {.step = 3, .lr = 0.03}};
    for (int64_t issued = 0; issued < 4; ++issued) {
      for (size_t i = 0; i < host.size(); ++i) {
        host[i].arrays.gradient.copy_(normal(host[i].arrays.gradient.numel(), 10 + static_cast<uint64_t>(issued)));
        device[i].arrays.gradient.copy_(host[i].arrays.gradient);
      }
      const bool skipped = issued == 1;
      if (skipped) device[0].arrays.gradient.fill_(std::numeric_limits<float>::infinity());
      on_gpu.optimizer->step(
          device,
          {.rates = rates, .applied_steps = applied, .skip = at::scalar_tensor(skipped ? 1.0F : 0.0F).to(at::kCUDA)});
      if (skipped) continue;
      on_host.optimizer->step(host, {.rates = {rates[static_cast<size_t>(issued == 0 ? 0 : issued - 1)]}});
      applied.add_(1);
    }
    for (size_t i = 0; i < host.size(); ++i) {
      CHECK((device[i].arrays.master.cpu() - host[i].arrays.master).abs().max().item<double>() < bound);
      CHECK(at::equal(device[i].arrays.low_precision, device[i].arrays.master.to(at::kBFloat16)));
      for (size_t m = 0; m < host[i].arrays.moments.size(); ++m) {
        CHECK((device[i].arrays.moments[m].cpu() - host[i].arrays.moments[m]).abs().max().item<double>() < 1e-6);
      }
    }
    const auto means = on_host.optimizer->own_state(), device_means = on_gpu.optimizer->own_state();
    REQUIRE(means.size() == device_means.size());
    for (size_t i = 0; i < means.size(); ++i) {
      CHECK((device_means[i].values.cpu() - means[i].values).abs().max().item<double>() < 1e-6);
    }
  }
}

TEST_CASE("norm and clip factor stay on the device and agree with the host's", "[gpu][gradient_norm]") {
  if (!dslaunch::test::has_device()) return;
  const std::vector<at::Tensor> host = {normal(10'000, 1), normal(0, 2), normal(100'003, 3),
                                        normal(100'003, 4).to(at::kBFloat16), normal(33, 5).to(at::kHalf)};
  std::vector<at::Tensor> device;
  for (const auto& tensor : host) device.push_back(on_device(tensor));
  const at::Tensor sum = sum_of_squares(device);
  CHECK(sum.is_cuda());
  CHECK(sum.item<double>() == Approx(sum_of_squares(host).item<double>()).epsilon(1e-13));
  CHECK(sum_of_squares(device).item<double>() == sum.item<double>());
  CHECK(sum_of_squares(on_device(normal(0, 4))).item<double>() == 0.0);
  const auto clipped = clip_by_norm(sum, 2.0, 0.5);
  CHECK(clipped.factor.is_cuda());
  const auto expected = clip_by_norm(sum.cpu(), 2.0, 0.5);
  CHECK(clipped.norm.item<double>() == expected.norm.item<double>());
  CHECK(clipped.factor.item<float>() == expected.factor.item<float>());
}
