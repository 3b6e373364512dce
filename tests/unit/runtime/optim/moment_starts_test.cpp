#include "runtime/optim/moment_starts.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "runtime/optim/flat_optimizer.hpp"
#include "runtime/optim/moments.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using config::Optimizer;
using config::OptimizerType;

namespace {

constexpr int64_t kFirst = 37, kSecond = 21;

// Parameters back to back in one flat group.
struct Layout {
  ParameterTable table;
  std::vector<FlatGroup> groups{FlatGroup{}};

  explicit Layout(const std::vector<int64_t>& numels) {
    for (const int64_t numel : numels) {
      const int index = static_cast<int>(table.parameters.size());
      table.parameters.push_back({.name = std::string(1, static_cast<char>('a' + index)), .shape = {numel}});
      table.parameters.back().numel = numel;
      groups[0].segments.push_back({index, groups[0].numel, numel});
      groups[0].numel += numel;
    }
    groups[0].padded_numel = groups[0].numel;
  }
};

// Takes steps 4 to 6 of a run, of which `starts` says when the moments of the parameters began.
at::Tensor stepped(const Optimizer& settings, const std::vector<int64_t>& numels, const std::vector<int64_t>& starts,
                   int64_t first_step, int64_t from) {
  const Layout layout(numels);
  optim::OptimizerGroups groups{{{"default", settings}}, std::vector<int>(numels.size(), 0), 0};
  const auto optimizer = optim::make_flat_optimizer(groups, {&layout.table, &layout.groups, nullptr});
  const int64_t numel = layout.groups[0].numel;
  const at::Tensor all = at::cos(at::arange(kFirst + kSecond, at::kFloat)).add_(2.0);
  SpanState state{{0, 0, {0, numel}}, {.master = all.narrow(0, from, numel).clone()}};
  optim::allocate_moments(*optimizer, state);
  for (int64_t step = first_step; step < first_step + 3; ++step) {
    const at::Tensor of_step = at::sin(at::arange(kFirst + kSecond, at::kFloat).mul(1.7).add(step - first_step));
    state.arrays.gradient = of_step.narrow(0, from, numel).clone();
    optim::StepInputs inputs{.rates = {{.step = step, .lr = 0.01}}};
    if (!starts.empty()) inputs.moment_starts = std::make_shared<optim::MomentStarts>(starts);
    optimizer->step({&state, 1}, inputs);
  }
  return state.arrays.master;
}

}  // namespace

TEST_CASE("a parameter whose moments begin later steps as in a run of its own", "[runtime][moment_starts]") {
  const std::vector<Optimizer> all = {
      {.weight_decay = 0.1},
      {.amsgrad = true},
      {.type = OptimizerType::kAdam, .beta1 = 0.8, .decoupled_weight_decay = false},
      {.type = OptimizerType::kSgd, .momentum = 0.9, .dampening = 0.3},
      {.type = OptimizerType::kAdagrad, .lr_decay = 0.5},
      {.type = OptimizerType::kLion},
      {.type = OptimizerType::kLamb},
  };
  for (const auto& settings : all) {
    INFO("optimizer type " << static_cast<int>(settings.type));
    const at::Tensor both = stepped(settings, {kFirst, kSecond}, {0, 3}, 4, 0);
    CHECK(both.narrow(0, 0, kFirst).equal(stepped(settings, {kFirst}, {}, 4, 0)));
    CHECK(both.narrow(0, kFirst, kSecond).equal(stepped(settings, {kSecond}, {}, 1, kFirst)));
  }
}

TEST_CASE("moments that all began with the run need no cut", "[runtime][moment_starts]") {
  CHECK(optim::MomentStarts(std::vector<int64_t>{0, 0}).are_zero());
  CHECK(optim::MomentStarts().num_sets(3) == 3);
  const optim::MomentStarts starts({5, 0, 5});
  CHECK(starts.num_sets(2) == 4);
  CHECK(starts.of(0) == 5);
  CHECK(starts.of(1) == 0);
  CHECK(starts.step_of_set(static_cast<size_t>(starts.set_of(2, 1, 2)), 2, 7) == 2);
}
