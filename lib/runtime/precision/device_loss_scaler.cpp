#include "runtime/precision/device_loss_scaler.hpp"

#include <ATen/ATen.h>

#include "base/error.hpp"

namespace dslaunch::runtime::precision {

DeviceLossScaler::DeviceLossScaler(const config::LossScale& policy, at::Device device)
    : policy_(policy),
      scale_(at::empty({}, at::TensorOptions().device(device).dtype(at::kDouble))),
      counts_(at::empty({4}, at::TensorOptions().device(device).dtype(at::kLong))),
      iteration_(counts_.select(0, 0)),
      last_overflow_(counts_.select(0, 1)),
      budget_(counts_.select(0, 2)),
      applied_steps_(counts_.select(0, 3)) {
  set(LossScaler(policy).state());
}

void DeviceLossScaler::update(const at::Tensor& overflow) {
  DSL_CHECK(overflow.dim() == 0 && overflow.scalar_type() == at::kBool, "a verdict is one bool");
  at::NoGradGuard no_grad;
  const at::Tensor is_clean = overflow.logical_not();
  if (policy_.kind == config::LossScaleKind::kDynamic) {
    const at::Tensor budget_is_spent = budget_.le(1);
    const at::Tensor reduces = overflow.logical_and(budget_is_spent);
    const at::Tensor spends = overflow.logical_and(budget_is_spent.logical_not());
    const at::Tensor clean_steps = iteration_ - last_overflow_ - (policy_.late_growth ? 1 : 0);
    const at::Tensor grows =
        is_clean.logical_and(clean_steps.gt(0)).logical_and(clean_steps.remainder(policy_.window).eq(0));
    const at::Tensor refills = policy_.consecutive_hysteresis ? is_clean : grows;
    const at::Tensor reduced = (scale_ * 0.5).clamp_min(policy_.minimum);
    const at::Tensor grown = at::minimum(scale_ * 2.0, scale_.clamp_min(policy_.maximum));
    scale_.copy_(at::where(reduces, reduced, at::where(grows, grown, scale_)));
    budget_.sub_(spends.to(at::kLong));
    budget_.masked_fill_(refills, policy_.hysteresis);
  }
  last_overflow_.copy_(at::where(overflow, iteration_, last_overflow_));
  iteration_.add_(1);
  applied_steps_.add_(is_clean.to(at::kLong));
}

void DeviceLossScaler::set(const LossScaleState& state) {
  scale_.fill_(state.scale);
  iteration_.fill_(state.iteration);
  last_overflow_.fill_(state.last_overflow);
  budget_.fill_(state.budget);
  applied_steps_.fill_(state.applied_steps);
}

LossScaleState DeviceLossScaler::read() const {
  const at::Tensor counts = counts_.cpu();
  const int64_t* values = counts.const_data_ptr<int64_t>();
  return {scale_.item<double>(), values[0], values[1], values[2], values[3], 0};
}

}  // namespace dslaunch::runtime::precision
