#include "runtime/precision/loss_scaling.hpp"

#include <ATen/ATen.h>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::precision {

LossScaling::LossScaling(const config::LossScale& policy, at::Device device) : host_(policy) {
  if (policy.kind == config::LossScaleKind::kNone) return;
  device_.emplace(policy, device);
  skip_ = at::zeros({}, at::TensorOptions().device(device).dtype(at::kFloat));
}

at::Tensor LossScaling::scaled(const at::Tensor& loss) const {
  return is_on() ? loss.to(at::kFloat) * device_->scale().to(at::kFloat) : loss;
}

at::Tensor LossScaling::unscaled_squares(const at::Tensor& squares) const {
  return is_on() ? squares / (device_->scale() * device_->scale()) : squares;
}

void LossScaling::detect_overflow(const at::Tensor& values) {
  if (is_on()) skip_.copy_(values.isfinite().all().logical_not());
}

at::Tensor LossScaling::unscaled_factor(const at::Tensor& factor) const {
  return is_on() ? (factor.to(at::kDouble) / device_->scale()).to(at::kFloat) : factor;
}

at::Tensor LossScaling::applied_steps() const {
  return is_on() ? device_->applied_steps() : at::Tensor();
}

at::Tensor LossScaling::report() const {
  return at::stack({skip_, device_->scale().to(at::kFloat)});
}

void LossScaling::advance() {
  if (!is_on()) {
    host_.update(false);
    return;
  }
  device_->update(skip_.ne(0));
  num_unknown_steps_ += 1;
}

ScaleChange LossScaling::follow(const float* report) {
  DSL_CHECK(num_unknown_steps_ > 0, "a report of a step that was not computed");
  num_unknown_steps_ -= 1;
  const ScaleChange change = host_.update(report[0] != 0.0F);
  DSL_CHECK(static_cast<float>(change.scale) == report[1],
            fmt::format("the loss scale is {} on the device but {} on the host", report[1], change.scale));
  return change;
}

std::map<std::string, double> LossScaling::scalars() const {
  DSL_CHECK(num_unknown_steps_ == 0, "a state of steps that are still running");
  return to_scalars(host_.state(), is_on());
}

void LossScaling::restore(const std::map<std::string, double>& scalars, int64_t steps_done) {
  LossScaleState state = host_.state();
  state.applied_steps = steps_done;
  host_.restore(from_scalars(scalars, state));
  if (is_on()) device_->set(host_.state());
}

}  // namespace dslaunch::runtime::precision
