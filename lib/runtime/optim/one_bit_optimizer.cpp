#include "runtime/optim/one_bit_optimizer.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/format.hpp"
#include "config/enum_names.hpp"
#include "runtime/optim/algorithms.hpp"
#include "runtime/optim/step_choice.hpp"

namespace dslaunch::runtime::optim {

OneBitOptimizer::OneBitOptimizer(const OptimizerGroups& groups, FlatLayout layout, bool exchanges_all_at_once)
    : groups_(groups.groups), layout_(layout), exchanges_all_at_once_(exchanges_all_at_once) {
  DSL_CHECK(layout.table != nullptr, "1-bit optimizers need the table of the parameters");
  DSL_CHECK(layout.ranks == nullptr && layout.tensor_ranks == nullptr, "every rank holds all parameters");
}

const std::vector<std::string>& OneBitOptimizer::moment_names(int) const {
  static const std::vector<std::string> kNames = {"exp_avg", "exp_avg_sq"};
  return kNames;
}

std::vector<OneBitOptimizer::Bucket> OneBitOptimizer::buckets_of(std::span<const SpanState> states) const {
  std::map<int, Bucket> by_key;
  for (const auto& [span, arrays] : states) {
    const int key = key_of(span.flat_group);
    auto& bucket = by_key[key];
    bucket.key = key;
    for (const auto& piece : pieces_in(layout_.groups->at(static_cast<size_t>(span.flat_group)), span.range)) {
      if (piece.count == 0) continue;
      DSL_CHECK(piece.count == info_of(piece.parameter).numel, "1-bit optimizers work on whole parameters");
      bucket.parameters.push_back(
          {piece.parameter, static_cast<size_t>(span.optimizer_group), narrow(arrays, piece.offset, piece.count)});
    }
  }
  std::vector<Bucket> out;
  for (auto& [_, bucket] : by_key) {
    if (bucket.parameters.empty()) continue;
    std::sort(bucket.parameters.begin(), bucket.parameters.end(),
              [](const Parameter& one, const Parameter& other) { return one.index < other.index; });
    if (const auto found = exchanges_.find(bucket.key); found != exchanges_.end())
      bucket.exchange = found->second.get();
    out.push_back(std::move(bucket));
  }
  return out;
}

int64_t OneBitOptimizer::own_state_bytes(std::span<const StateSpan> spans) const {
  std::map<int, std::vector<int64_t>> numels;
  for (const auto& span : spans) {
    for (const auto& piece : pieces_in(layout_.groups->at(static_cast<size_t>(span.flat_group)), span.range)) {
      auto& of_key = numels[key_of(span.flat_group)];
      exchanges_all_at_once_ && !of_key.empty() ? void(of_key[0] += piece.count) : of_key.push_back(piece.count);
    }
  }
  int64_t bytes = 0;
  for (const auto& [key, each] : numels) bytes += OneBitAllReduce::error_bytes(each, layout_.num_replicas);
  return bytes;
}

void OneBitOptimizer::allocate_own_state(std::span<const SpanState> states) {
  exchanges_.clear();
  for (const auto& bucket : buckets_of(states)) {
    std::vector<int64_t> numels;
    for (const auto& parameter : bucket.parameters) numels.push_back(info_of(parameter.index).numel);
    if (exchanges_all_at_once_) numels = {std::accumulate(numels.begin(), numels.end(), int64_t{0})};
    exchanges_[bucket.key] =
        std::make_unique<OneBitAllReduce>(numels, layout_.replicas, states[0].arrays.master.device());
  }
}

// With steps of its own, a parameter would divide by a variance that has seen few gradients or none.
void OneBitOptimizer::require_common_start(const std::vector<Bucket>& buckets, const MomentStarts& starts) const {
  for (const auto& bucket : buckets) {
    for (const auto& parameter : bucket.parameters) {
      if (starts.of(parameter.index) == 0) continue;
      throw UserError(
          ExitCode::kBadInput,
          fmt::format(
              "{} cannot begin to train '{}' after {} steps: its variance would miss the warm-up of the others; "
              "resume with checkpoint.load.optimizer_states false, which begins a warm-up for all of them",
              config::name_of(config::kOptimizerTypes, settings_of(parameter).type), info_of(parameter.index).name,
              starts.of(parameter.index)));
    }
  }
}

void OneBitOptimizer::step(std::span<const SpanState> states, const StepInputs& inputs) const {
  if (states.empty()) return;
  const at::Device device = states[0].arrays.master.device();
  check_inputs(inputs, device);
  DSL_CHECK(inputs.rates.size() == 1, "which step comes next is known on the host");
  for (const auto& state : states) {
    check_state(state, device, groups_.size(), moment_names(state.span.optimizer_group).size());
  }
  if (!inputs.starts().are_zero()) require_common_start(buckets_of(states), inputs.starts());
  if (device.is_cpu() && is_skipped(inputs)) return;
  const at::NoGradGuard no_grad;
  if (averages_gradients(inputs.rates[0].step)) return step_averaged(states, inputs);
  for (const auto& bucket : buckets_of(states)) step_alone(bucket, inputs);
}

double OneBitOptimizer::beta1_of(const Parameter& parameter, const StepInputs& inputs) const {
  return inputs.rates[0].of_group(parameter.group).beta1.value_or(settings_of(parameter).beta1);
}

double OneBitOptimizer::beta2_of(const Parameter& parameter, const StepInputs& inputs) const {
  return inputs.rates[0].of_group(parameter.group).beta2.value_or(settings_of(parameter).beta2);
}

double OneBitOptimizer::lr_of(const Parameter& parameter, const StepInputs& inputs) const {
  return inputs.rates[0].of_group(parameter.group).lr;
}

// The factor divides by the number of ranks whose gradients were added up.
at::Tensor OneBitOptimizer::gradient_of(const Parameter& parameter, const StepInputs& inputs) const {
  at::Tensor gradient = parameter.arrays.gradient.to(at::kFloat);
  if (inputs.gradient_factor.defined()) gradient = gradient * inputs.gradient_factor;
  return averages_gradients(inputs.rates[0].step) ? gradient : gradient * layout_.num_replicas;
}

at::Tensor OneBitOptimizer::moved_momentum(const Parameter& parameter, const at::Tensor& gradient,
                                           const StepInputs& inputs) const {
  const double beta1 = beta1_of(parameter, inputs);
  return parameter.moment(0) * beta1 + gradient * (1.0 - beta1);
}

at::Tensor OneBitOptimizer::denominator_of(const Parameter& parameter) const {
  return parameter.moment(1).sqrt() + settings_of(parameter).eps;
}

at::Tensor OneBitOptimizer::direction_of(const Parameter& parameter, const at::Tensor& momentum) const {
  const double decay = settings_of(parameter).weight_decay;
  const at::Tensor ratio = momentum / denominator_of(parameter);
  return decay == 0.0 ? ratio : ratio + parameter.arrays.master * decay;
}

std::vector<at::Tensor> OneBitOptimizer::mean_of(const Bucket& bucket, const std::vector<at::Tensor>& values,
                                                 const StepInputs& inputs) {
  DSL_CHECK(bucket.exchange != nullptr, "allocate_own_state() comes before the first step");
  const at::Tensor mean = bucket.exchange->mean(at::cat(values), inputs.skip);
  std::vector<int64_t> numels;
  for (const auto& each : values) numels.push_back(each.numel());
  return mean.split_with_sizes(numels);
}

std::unique_ptr<FlatOptimizer> OneBitOptimizer::make_plain_adam() const {
  std::vector<OptimizerGroup> groups = groups_;
  for (auto& group : groups) {
    group.settings.type = config::OptimizerType::kAdamW;
    group.settings.bias_correction = false;
    group.settings.decoupled_weight_decay = true;
  }
  return make_elementwise(groups, layout_);
}

}  // namespace dslaunch::runtime::optim
