// The element-wise optimizers (Adam, AdamW, SGD, Lion, Adagrad). One class for all of them: they differ in their
// coefficients, host loop and kernel.
#include "runtime/optim/algorithms.hpp"

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/device/device_module.hpp"
#include "runtime/optim/step_choice.hpp"
#include "runtime/state/parallel_ranges.hpp"

namespace dslaunch::runtime::optim {
namespace {

constexpr int64_t kGrain = 32768;  // minimum number of elements per thread

template <class C>
struct Rule {
  std::vector<std::string> moment_names;
  C (*coefficients)(const config::Optimizer& settings, const GroupRates& rates, int64_t step);
  void (*host)(const host::Range& range, const C& coefficients, float factor, host::InstructionSet set);
  DeviceFunctions::Update<C> DeviceFunctions::*device;
  double initial_moment = 0.0;
};

template <class C>
class Elementwise final : public FlatOptimizer {
 public:
  Elementwise(const std::vector<OptimizerGroup>& groups, FlatLayout layout, Rule<C> rule)
      : groups_(groups), layout_(layout), rule_(std::move(rule)) {}

  const std::vector<std::string>& moment_names(int) const override { return rule_.moment_names; }
  double initial_moment(int, size_t) const override { return rule_.initial_moment; }

  void step(std::span<const SpanState> states, const StepInputs& inputs) const override {
    if (states.empty()) return;
    const at::Device device = states[0].arrays.master.device();
    check_inputs(inputs, device);
    for (const auto& state : states) {
      check_state(state, device, groups_.size(), rule_.moment_names.size());
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
    return rule_.coefficients(groups_[group].settings, rates.of_group(group),
                              inputs.starts().step_of_set(set, groups_.size(), rates.step));
  }

  void step_on_device(std::span<const SpanState> states, const StepInputs& inputs, at::Device device) const {
    const auto by_set =
        device_coefficients<C>(inputs.starts().num_sets(groups_.size()), inputs, device,
                               [&](size_t set, const StepRates& rates) { return coefficients(set, inputs, rates); });
    for (const auto& [span, arrays] : states) {
      if (arrays.master.numel() > 0) {
        (device::module().optim.*rule_.device)(arrays, by_set[static_cast<size_t>(span.optimizer_group)], inputs);
      }
    }
  }

  void step_on_host(const SpanState& state, const StepInputs& inputs) const {
    const C chosen = coefficients(static_cast<size_t>(state.span.optimizer_group), inputs, select_rates(inputs));
    const host::Range all = host_range(state.arrays);
    const float factor = gradient_factor(inputs);
    const auto set = host::best_instruction_set();
    parallel_ranges(all.count, kGrain,
                    [&](int64_t begin, int64_t end) { rule_.host(host::part(all, begin, end), chosen, factor, set); });
  }

  const std::vector<OptimizerGroup> groups_;
  const FlatLayout layout_;
  const Rule<C> rule_;
};

template <class C>
std::unique_ptr<FlatOptimizer> make(const std::vector<OptimizerGroup>& groups, FlatLayout layout, Rule<C> rule) {
  return std::make_unique<Elementwise<C>>(groups, layout, std::move(rule));
}

void check_nesterov(const config::Optimizer& settings) {
  if (!settings.nesterov || (settings.momentum > 0.0 && settings.dampening == 0.0)) return;
  throw UserError(ExitCode::kBadInput,
                  fmt::format("optimizer.params.nesterov needs a momentum above 0 and a dampening of 0, but momentum "
                              "is {} and dampening is {}.",
                              settings.momentum, settings.dampening));
}

std::unique_ptr<FlatOptimizer> make_sgd(const std::vector<OptimizerGroup>& groups, FlatLayout layout) {
  // If one group's momentum is 0 and another's is not, all groups keep the moment.
  bool has_momentum = false;
  for (const auto& group : groups) {
    check_nesterov(group.settings);
    has_momentum = has_momentum || group.settings.momentum != 0.0;
  }
  if (!has_momentum)
    return make<SgdCoefficients>(groups, layout, {{}, sgd_coefficients, host::update_sgd, &DeviceFunctions::sgd});
  return make<SgdCoefficients>(groups, layout,
                               {{"momentum"}, sgd_coefficients, host::update_sgd_momentum, &DeviceFunctions::sgd});
}

}  // namespace

std::unique_ptr<FlatOptimizer> make_elementwise(const std::vector<OptimizerGroup>& groups, FlatLayout layout) {
  DSL_CHECK(!groups.empty(), "an optimizer has at least one group");
  const config::Optimizer& settings = groups.front().settings;
  switch (settings.type) {
    case config::OptimizerType::kSgd:
      return make_sgd(groups, layout);
    case config::OptimizerType::kLion:
      return make<LionCoefficients>(groups, layout,
                                    {{"exp_avg"}, lion_coefficients, host::update_lion, &DeviceFunctions::lion});
    case config::OptimizerType::kAdagrad:
      return make<AdagradCoefficients>(groups, layout,
                                       {{"sum"},
                                        adagrad_coefficients,
                                        host::update_adagrad,
                                        &DeviceFunctions::adagrad,
                                        settings.initial_accumulator_value});
    case config::OptimizerType::kAdam:
    case config::OptimizerType::kAdamW:
    case config::OptimizerType::kMuon:
      break;
    case config::OptimizerType::kLamb:
      throw InternalError(__FILE__, __LINE__, "settings.type", "Lamb is not element-wise");
  }
  if (settings.amsgrad) {
    return make<AdamCoefficients>(
        groups, layout,
        {{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, adam_coefficients, host::update_amsgrad, &DeviceFunctions::adam});
  }
  return make<AdamCoefficients>(
      groups, layout, {{"exp_avg", "exp_avg_sq"}, adam_coefficients, host::update_adam, &DeviceFunctions::adam});
}

}  // namespace dslaunch::runtime::optim
