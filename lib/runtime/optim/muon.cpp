// Muon as in DeepSpeed 0.18.2: momentum, then five Newton-Schulz steps in bf16 that bring the singular values of a
// parameter's update near 1. All other parameters are updated by Adam with decoupled weight decay.
//
// Muon needs whole matrices. Where flat groups are sharded, their updates are all-gathered in bf16 (the type in which
// the iteration starts), and each rank orthogonalizes the matrices that its shard touches: any world size computes from
// the same bits.
#include "runtime/optim/algorithms.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "comm/communicator.hpp"
#include "runtime/optim/step_choice.hpp"
#include "runtime/state/pinned_memory.hpp"

namespace dslaunch::runtime::optim {
namespace {

constexpr int kNewtonSchulzSteps = 5;
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;

// The factors of a step: 0-dim fp32 tensors on the master's device, so that nothing waits for a device.
struct MuonCoefficients {
  at::Tensor one_minus_momentum, lr, keep;
};

class Muon final : public FlatOptimizer {
 public:
  Muon(const OptimizerGroups& groups, FlatLayout layout)
      : groups_(groups), layout_(layout), adam_(make_elementwise(groups.groups, layout)) {
    DSL_CHECK(layout.table != nullptr && layout.groups != nullptr, "Muon needs the layout of the parameters");
  }

  const std::vector<std::string>& moment_names(int group) const override {
    static const std::vector<std::string> names = {"momentum_buffer"};
    return groups_.groups.at(static_cast<size_t>(group)).is_muon ? names : adam_->moment_names(group);
  }

  void step(std::span<const SpanState> states, const StepInputs& inputs) const override {
    if (states.empty()) return;
    const at::Device device = states[0].arrays.master.device();
    check_inputs(inputs, device);
    std::vector<SpanState> others;
    for (const auto& state : states) {
      if (!is_muon(state.span)) others.push_back(state);
    }
    adam_->step(others, inputs);
    if (device.is_cpu() && is_skipped(inputs)) return;
    const at::NoGradGuard no_grad;
    const auto by_group = coefficients(inputs, device);
    for (size_t i = 0; i < layout_.groups->size(); ++i) {
      if (has_matrices(layout_.groups->at(i))) step_group(static_cast<int>(i), states, inputs, by_group);
    }
  }

 private:
  bool is_muon(const StateSpan& span) const {
    return groups_.groups.at(static_cast<size_t>(span.optimizer_group)).is_muon;
  }
  bool is_muon(int parameter) const {
    const int group = groups_.of_parameter.at(static_cast<size_t>(parameter));
    return groups_.groups[static_cast<size_t>(group)].is_muon;
  }
  bool has_matrices(const FlatGroup& group) const {
    return std::any_of(group.segments.begin(), group.segments.end(),
                       [&](const Segment& s) { return s.numel > 0 && is_muon(s.parameter); });
  }

  std::vector<MuonCoefficients> coefficients(const StepInputs& inputs, at::Device device) const {
    const auto num_groups = static_cast<int64_t>(groups_.groups.size());
    const auto num_rows = static_cast<int64_t>(inputs.rates.size());
    at::Tensor rows = host_memory_for(device, {num_rows, num_groups, 3}, at::kFloat);
    auto* next = rows.mutable_data_ptr<float>();
    for (const StepRates& rates : inputs.rates) {
      for (size_t g = 0; g < groups_.groups.size(); ++g) {
        const auto& settings = groups_.groups[g].settings;
        const double lr = rates.of_group(g).lr;
        *next++ = static_cast<float>(1.0 - settings.momentum);
        *next++ = static_cast<float>(lr);
        *next++ = static_cast<float>(1.0 - lr * settings.weight_decay);
      }
    }
    rows = rows.to(device, /*non_blocking=*/true);
    const at::Tensor row = inputs.applied_steps.defined()
                               ? rows.index_select(0, (inputs.applied_steps - (inputs.rates[0].step - 1)).view({1}))[0]
                               : rows[0];
    std::vector<MuonCoefficients> out;
    for (int64_t g = 0; g < num_groups; ++g) out.push_back({row[g][0], row[g][1], row[g][2]});
    return out;
  }

  void step_group(int index, std::span<const SpanState> states, const StepInputs& inputs,
                  const std::vector<MuonCoefficients>& by_group) const {
    const FlatGroup& group = layout_.groups->at(static_cast<size_t>(index));
    const auto device = states[0].arrays.master.device();
    std::vector<const SpanState*> matrices;
    for (const auto& state : states) {
      if (state.span.flat_group != index || !is_muon(state.span)) continue;
      check_state(state, device, groups_.groups.size(), 1);
      matrices.push_back(&state);
    }
    at::Tensor updates = at::zeros({group.padded_numel}, at::TensorOptions().dtype(at::kBFloat16).device(device));
    for (const auto* state : matrices) {
      const StateSpan& span = state->span;
      updates.narrow(0, span.range.begin, span.numel())
          .copy_(advance_momentum(state->arrays, inputs, by_group[static_cast<size_t>(span.optimizer_group)]));
    }
    gather(updates, group);
    for (const auto& segment : group.segments) {
      if (segment.numel > 0 && is_muon(segment.parameter)) apply(segment, updates, matrices, inputs, by_group);
    }
  }

  // Advances the momentum buffer; returns Nesterov's update. One operation at a time: a fused multiply-add, which some
  // loops of LibTorch use and others do not, would make a result depend on where a shard begins.
  static at::Tensor advance_momentum(const StateArrays& arrays, const StepInputs& inputs, const MuonCoefficients& c) {
    at::Tensor gradient = arrays.gradient.to(at::kFloat);
    if (inputs.gradient_factor.defined()) gradient = gradient * inputs.gradient_factor;
    const at::Tensor& momentum = arrays.moments[0];
    const at::Tensor moved = momentum + (gradient - momentum) * c.one_minus_momentum;
    momentum.copy_(inputs.skip.defined() ? at::where(inputs.skip != 0, momentum, moved) : moved);
    return moved - (moved - gradient) * c.one_minus_momentum;
  }

  void gather(const at::Tensor& updates, const FlatGroup& group) const {
    if (layout_.ranks == nullptr) return;
    const Range own = shard_range(group, layout_.ranks->rank(), layout_.ranks->size());
    const at::Tensor in = updates.narrow(0, own.begin, own.size());
    layout_.ranks->all_gather(
        {in.const_data_ptr(), static_cast<size_t>(in.numel()), comm::DType::kBFloat16},
        {updates.mutable_data_ptr(), static_cast<size_t>(updates.numel()), comm::DType::kBFloat16});
  }

  // Updates the parts of one matrix that the spans hold; a matrix that they do not touch is updated by other ranks.
  void apply(const Segment& segment, const at::Tensor& updates, const std::vector<const SpanState*>& states,
             const StepInputs& inputs, const std::vector<MuonCoefficients>& by_group) const {
    at::Tensor update;
    for (const auto* state : states) {
      const auto& [span, arrays] = *state;
      const int64_t begin = std::max(segment.offset, span.range.begin);
      const int64_t end = std::min(segment.offset + segment.numel, span.range.end);
      if (begin >= end) continue;
      const auto& shape = layout_.table->parameters[static_cast<size_t>(segment.parameter)].shape;
      if (!update.defined()) {
        update = orthogonalised(updates.narrow(0, segment.offset, segment.numel).view(shape)).reshape({-1});
      }
      const auto& c = by_group[static_cast<size_t>(span.optimizer_group)];
      const at::Tensor p = arrays.master.narrow(0, begin - span.range.begin, end - begin);
      const at::Tensor step = update.narrow(0, begin - segment.offset, end - begin).to(at::kFloat) * c.lr;
      const at::Tensor moved = p * c.keep - step;
      p.copy_(inputs.skip.defined() ? at::where(inputs.skip != 0, p, moved) : moved);
      if (!arrays.master_is_parameter()) {
        arrays.low_precision.narrow(0, begin - span.range.begin, end - begin).copy_(p);
      }
    }
  }

  const OptimizerGroups groups_;
  const FlatLayout layout_;
  const std::unique_ptr<FlatOptimizer> adam_;
};

}  // namespace

at::Tensor orthogonalised(const at::Tensor& update) {
  DSL_CHECK(update.dim() >= 2 && update.numel() > 0, "Muon needs matrices");
  at::Tensor x = update.dim() == 4 ? update.reshape({update.size(0), -1}) : update;
  const bool tall = x.size(-2) > x.size(-1);
  if (tall) x = x.mT();
  x = x / (x.norm(2, {-2, -1}, /*keepdim=*/true) + 1e-7);
  for (int step = 0; step < kNewtonSchulzSteps; ++step) {
    const at::Tensor a = at::matmul(x, x.mT());
    const at::Tensor b = kB * a + at::matmul(kC * a, a);
    x = kA * x + at::matmul(b, x);
  }
  if (tall) x = x.mT();
  const double aspect = static_cast<double>(update.size(-2)) / static_cast<double>(update.size(-1));
  return x * std::sqrt(std::max(1.0, aspect));
}

std::unique_ptr<FlatOptimizer> make_muon(const OptimizerGroups& groups, FlatLayout layout) {
  return std::make_unique<Muon>(groups, layout);
}

}  // namespace dslaunch::runtime::optim
