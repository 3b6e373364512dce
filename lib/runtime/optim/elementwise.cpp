// The element-wise optimizers: one class for all of them, and a row for each.
#include "runtime/optim/algorithms.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/device/device_module.hpp"
#include "runtime/optim/step_choice.hpp"
#include "runtime/state/parallel_ranges.hpp"

namespace dslaunch::runtime::optim {
namespace {

constexpr int64_t kGrain = 32768;  // minimum number of elements per thread

using config::OptimizerType;

// What an optimizer needs beside its rule (kernels/optimizer_rules.h).
template <class Rule>
struct Row {
  std::vector<std::string> moment_names;  // as many as the rule has
  typename Rule::Values (*coefficients)(const config::Optimizer& settings, const GroupRates& rates, int64_t step);
  // A moment's value before the first step; null: 0.
  double (*initial)(const config::Optimizer& settings, size_t moment) = nullptr;
};

template <class Rule>
class Elementwise final : public FlatOptimizer {
 public:
  using C = typename Rule::Values;

  Elementwise(const std::vector<OptimizerGroup>& groups, FlatLayout layout, Row<Rule> row)
      : groups_(groups), layout_(layout), row_(std::move(row)) {
    DSL_CHECK(row_.moment_names.size() == Rule::kMoments, "a name for each moment of the rule");
  }

  const std::vector<std::string>& moment_names(int) const override { return row_.moment_names; }
  double initial_moment(int group, size_t moment) const override {
    return row_.initial == nullptr ? 0.0 : row_.initial(groups_.at(static_cast<size_t>(group)).settings, moment);
  }

  void step(std::span<const SpanState> states, const StepInputs& inputs) const override {
    if (states.empty()) return;
    const at::Device device = states[0].arrays.master.device();
    check_inputs(inputs, device);
    for (const auto& state : states) {
      check_state(state, device, groups_.size(), row_.moment_names.size());
    }
    std::vector<SpanState> parts;
    if (!inputs.starts().are_zero()) {
      parts = inputs.starts().cut(states, layout_, groups_.size());
      states = parts;
    }
    if (device.is_cuda()) return step_on_device(states, inputs, device);
    if (is_skipped(inputs)) return;
    for (const auto& state : states) step_on_host(state, inputs);
  }

 private:
  C coefficients(size_t set, const StepInputs& inputs, const StepRates& rates) const {
    const size_t group = MomentStarts::group_of_set(set, groups_.size());
    return row_.coefficients(groups_[group].settings, rates.of_group(group),
                             inputs.starts().step_of_set(set, groups_.size(), rates.step));
  }

  void step_on_device(std::span<const SpanState> states, const StepInputs& inputs, at::Device device) const {
    const auto by_set =
        device_coefficients<C>(inputs.starts().num_sets(groups_.size()), inputs, device,
                               [&](size_t set, const StepRates& rates) { return coefficients(set, inputs, rates); });
    const auto element_step = std::get<DeviceFunctions::ElementStep<Rule>>(device::module().optim.element_steps);
    for (const auto& [span, arrays] : states) {
      if (arrays.master.numel() > 0) {
        element_step.run(arrays, by_set[static_cast<size_t>(span.optimizer_group)], inputs);
      }
    }
  }

  void step_on_host(const SpanState& state, const StepInputs& inputs) const {
    const C chosen = coefficients(static_cast<size_t>(state.span.optimizer_group), inputs, select_rates(inputs));
    const host::Range all = host_range(state.arrays);
    const float factor = gradient_factor(inputs);
    const auto set = host::best_instruction_set();
    parallel_ranges(all.count, kGrain, [&](int64_t begin, int64_t end) {
      host::update<Rule>(host::part(all, begin, end), chosen, factor, set);
    });
  }

  const std::vector<OptimizerGroup> groups_;
  const FlatLayout layout_;
  const Row<Rule> row_;
};

template <class Rule>
std::unique_ptr<FlatOptimizer> make(const std::vector<OptimizerGroup>& groups, FlatLayout layout, Row<Rule> row) {
  return std::make_unique<Elementwise<Rule>>(groups, layout, std::move(row));
}

void check_nesterov(const config::Optimizer& settings) {
  if (!settings.nesterov || (settings.momentum > 0.0 && settings.dampening == 0.0)) return;
  throw UserError(ExitCode::kBadInput,
                  fmt::format("optimizer.params.nesterov needs a momentum above 0 and a dampening of 0, but momentum "
                              "is {} and dampening is {}.",
                              settings.momentum, settings.dampening));
}

// If one group's momentum is 0 and another's is not, all groups keep the moment.
bool has_momentum(const std::vector<OptimizerGroup>& groups) {
  return std::any_of(groups.begin(), groups.end(),
                     [](const OptimizerGroup& group) { return group.settings.momentum != 0.0; });
}

std::unique_ptr<FlatOptimizer> make_rmsprop(const std::vector<OptimizerGroup>& groups, FlatLayout layout) {
  using namespace kernels;
  const bool momentum = has_momentum(groups), centered = groups.front().settings.centered;
  const auto coefficients = rmsprop_coefficients;
  if (momentum && centered) {
    return make<CenteredRmspropMomentumRule>(groups, layout,
                                             {{"square_avg", "momentum_buffer", "grad_avg"}, coefficients});
  }
  if (centered) return make<CenteredRmspropRule>(groups, layout, {{"square_avg", "grad_avg"}, coefficients});
  if (momentum) return make<RmspropMomentumRule>(groups, layout, {{"square_avg", "momentum_buffer"}, coefficients});
  return make<RmspropRule>(groups, layout, {{"square_avg"}, coefficients});
}

double accumulator_start(const config::Optimizer& settings, size_t) {
  return settings.initial_accumulator_value;
}

// Of Rprop's moments prev and step_size.
double first_step_size(const config::Optimizer& settings, size_t moment) {
  return moment == 0 ? 0.0 : settings.lr;
}

}  // namespace

std::unique_ptr<FlatOptimizer> make_elementwise(const std::vector<OptimizerGroup>& groups, FlatLayout layout) {
  DSL_CHECK(!groups.empty(), "an optimizer has at least one group");
  const config::Optimizer& settings = groups.front().settings;
  using namespace kernels;
  switch (settings.type) {
    case OptimizerType::kAdam:
    case OptimizerType::kAdamW:
    case OptimizerType::kMuon:
      if (settings.amsgrad) {
        return make<AmsgradRule>(groups, layout, {{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, adam_coefficients});
      }
      return make<AdamRule>(groups, layout, {{"exp_avg", "exp_avg_sq"}, adam_coefficients});
    case OptimizerType::kSgd:
      for (const auto& group : groups) check_nesterov(group.settings);
      if (has_momentum(groups)) return make<SgdMomentumRule>(groups, layout, {{"momentum"}, sgd_coefficients});
      return make<SgdRule>(groups, layout, {{}, sgd_coefficients});
    case OptimizerType::kLion:
      return make<LionRule>(groups, layout, {{"exp_avg"}, lion_coefficients});
    case OptimizerType::kAdagrad:
      return make<AdagradRule>(groups, layout, {{"sum"}, adagrad_coefficients, accumulator_start});
    case OptimizerType::kRmsprop:
      return make_rmsprop(groups, layout);
    case OptimizerType::kNadam:
      return make<NadamRule>(groups, layout, {{"exp_avg", "exp_avg_sq"}, nadam_coefficients});
    case OptimizerType::kRadam:
      return make<RadamRule>(groups, layout, {{"exp_avg", "exp_avg_sq"}, radam_coefficients});
    case OptimizerType::kAdamax:
      return make<AdamaxRule>(groups, layout, {{"exp_avg", "exp_inf"}, adamax_coefficients});
    case OptimizerType::kAdadelta:
      return make<AdadeltaRule>(groups, layout, {{"square_avg", "acc_delta"}, adadelta_coefficients});
    case OptimizerType::kRprop:
      return make<RpropRule>(groups, layout, {{"prev", "step_size"}, rprop_coefficients, first_step_size});
    case OptimizerType::kAsgd:
      return make<AsgdRule>(groups, layout, {{"ax"}, asgd_coefficients});
    case OptimizerType::kLamb:
    case OptimizerType::kAdafactor:
    case OptimizerType::kAdamW8bit:
    case OptimizerType::kOneBitAdam:
    case OptimizerType::kOneBitLamb:
    case OptimizerType::kZeroOneAdam:
      break;
  }
  throw InternalError(__FILE__, __LINE__, "settings.type", "the optimizer is not element-wise");
}

}  // namespace dslaunch::runtime::optim
