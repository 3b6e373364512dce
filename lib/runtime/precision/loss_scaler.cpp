#include "runtime/precision/loss_scaler.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/state/saved_scalars.hpp"

namespace dslaunch::runtime::precision {
namespace {

// Powers of two as integers, as DeepSpeed prints them.
std::string number(double scale) {
  const bool whole = scale == std::floor(scale) && scale < 1e18;
  return whole ? fmt::format("{:.0f}", scale) : fmt::format("{:g}", scale);
}

}  // namespace

LossScaler::LossScaler(const config::LossScale& policy) : policy_(policy) {
  state_.scale = policy_.initial;
  state_.budget = policy_.hysteresis;
}

ScaleChange LossScaler::update(bool overflow) {
  using Kind = ScaleChange::Kind;
  ScaleChange change{Kind::kApplied, state_.scale, state_.scale, state_.budget};
  const bool dynamic = policy_.kind == config::LossScaleKind::kDynamic;
  if (overflow) {
    state_.overflows_in_row += 1;
    if (!dynamic) {
      change.kind = Kind::kHeld;
    } else if (state_.budget > 1) {
      change.kind = Kind::kBudgetSpent;
      state_.budget -= 1;
    } else if (state_.scale == policy_.minimum) {
      change.kind = Kind::kAtMinimum;
    } else {
      change.kind = Kind::kReduced;
      state_.scale = std::max(state_.scale / 2, policy_.minimum);
    }
    state_.last_overflow = state_.iteration;
  } else {
    state_.overflows_in_row = 0;
    state_.applied_steps += 1;
    if (policy_.consecutive_hysteresis) state_.budget = policy_.hysteresis;
    const int64_t clean = state_.iteration - state_.last_overflow - (policy_.late_growth ? 1 : 0);
    if (dynamic && clean > 0 && clean % policy_.window == 0) {
      state_.budget = policy_.hysteresis;
      state_.scale = std::min(state_.scale * 2, std::max(state_.scale, policy_.maximum));
    }
  }
  state_.iteration += 1;
  change.next_scale = state_.scale;
  return change;
}

void LossScaler::restore(LossScaleState state) {
  if (policy_.kind == config::LossScaleKind::kDynamic) {
    state.scale = std::max(state.scale, policy_.minimum);
    state.budget = std::clamp<int64_t>(state.budget, 1, policy_.hysteresis);
  } else {
    state.scale = policy_.initial;
    state.budget = policy_.hysteresis;
  }
  state_ = state;
}

std::string describe(const ScaleChange& change) {
  using Kind = ScaleChange::Kind;
  const std::string attempted = "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: " + number(change.scale);
  switch (change.kind) {
    case Kind::kApplied:
      break;
    case Kind::kHeld:
      return attempted + ", which is static";
    case Kind::kBudgetSpent:
      return fmt::format("{}, but hysteresis is {}. Reducing hysteresis to {}", attempted, change.budget,
                         change.budget - 1);
    case Kind::kReduced:
      return fmt::format("{}, reducing to {}", attempted, number(change.next_scale));
    case Kind::kAtMinimum:
      return attempted + ", which is the minimum";
  }
  return {};
}

std::string explain_minimum(const LossScaleState& state, int64_t step) {
  const int64_t first = step - state.overflows_in_row + 1;
  const std::string row =
      state.overflows_in_row == 1
          ? fmt::format("step {} overflowed", step)
          : fmt::format("{} steps in a row overflowed, from step {} to step {}", state.overflows_in_row, first, step);
  return fmt::format(
      "the loss scale is at its minimum {}: {}; {} steps were applied before. The gradients or the loss are not finite "
      "at any scale. Check the samples and the learning rate of step {}, or train in bf16 or fp32; fp16.min_loss_scale "
      "0 removes the minimum if gradients are really that large",
      number(state.scale), row, state.applied_steps, first);
}

std::map<std::string, double> to_scalars(const LossScaleState& state, bool with_scale) {
  std::map<std::string, double> out{{"applied_steps", static_cast<double>(state.applied_steps)}};
  if (!with_scale) return out;
  out["loss_scale"] = state.scale;
  out["loss_scale_iteration"] = static_cast<double>(state.iteration);
  out["loss_scale_last_overflow"] = static_cast<double>(state.last_overflow);
  out["loss_scale_budget"] = static_cast<double>(state.budget);
  out["loss_scale_overflows_in_row"] = static_cast<double>(state.overflows_in_row);
  return out;
}

LossScaleState from_scalars(const std::map<std::string, double>& scalars, LossScaleState fallback) {
  const auto read = [&](const char* name, int64_t& value, int64_t least = 0) {
    value = saved_count(scalars, name, least).value_or(value);
  };
  read("applied_steps", fallback.applied_steps);
  read("loss_scale_iteration", fallback.iteration);
  read("loss_scale_last_overflow", fallback.last_overflow, /*least=*/-kExactIntegerLimit);
  read("loss_scale_budget", fallback.budget);
  read("loss_scale_overflows_in_row", fallback.overflows_in_row);
  if (const auto scale = scalars.find("loss_scale"); scale != scalars.end()) {
    if (!(scale->second >= 0)) {
      throw UserError(
          ExitCode::kBadInput,
          fmt::format("the checkpoint is damaged: its 'loss_scale' is {}. Use another checkpoint", scale->second));
    }
    fallback.scale = scale->second;
  }
  return fallback;
}

}  // namespace dslaunch::runtime::precision
