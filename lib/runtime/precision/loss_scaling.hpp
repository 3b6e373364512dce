// Loss scaling as a training step uses it: scales the loss, takes the scale out of the gradients' norm and factor,
// finds the overflow in the statistics of all ranks and moves the scale on. Nothing here waits for the device; the
// host's scaler follows when a step's statistics arrive. Without a scale (fp32, bf16) tensors pass through as they are
// and no step is ever skipped. One thread.
//
// In a step: scaled() before each backward; unscaled_squares(), judge(), unscaled_factor() once the gradients are
// reduced; skip() and applied_steps() for the optimizer; advance() after it; follow() when the host reads the report.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <string>

#include "runtime/precision/device_loss_scaler.hpp"
#include "runtime/precision/loss_scaler.hpp"

namespace dslaunch::runtime::precision {

class LossScaling {
 public:
  LossScaling(const config::LossScale& policy, at::Device device);
  bool is_on() const { return device_.has_value(); }

  // The loss in fp32, times the scale.
  at::Tensor scaled(const at::Tensor& loss) const;
  // Of the gradient without the scale. `squares`: 0-dim fp64, the squares of this rank's part of the gradients added
  // up.
  at::Tensor unscaled_squares(const at::Tensor& squares) const;
  // `values`: fp32, the same on all ranks; the step overflowed when one of them is not finite.
  void judge(const at::Tensor& values);
  // Turns the factor of the true gradient into that of the scaled one; 0-dim fp32.
  at::Tensor unscaled_factor(const at::Tensor& factor) const;

  // 0-dim fp32, 1 when the step just judged is to be skipped; undefined without a scale.
  const at::Tensor& skip() const { return skip_; }
  // 0-dim int64 on the device, the step just judged not counted; undefined without a scale.
  at::Tensor applied_steps() const;
  // fp32 [2]: what follow() reads of this step, [skip, scale]; before advance().
  at::Tensor report() const;
  void advance();

  // The host's count; without a scale it includes the steps advanced past, else those followed.
  int64_t known_applied_steps() const { return host_.state().applied_steps; }
  // The steps that the host has not followed yet; each of them may have been applied.
  int64_t num_unknown_steps() const { return num_unknown_steps_; }
  // `report`: that of the oldest step not followed, on the host. InternalError when host and device have parted.
  ScaleChange follow(const float* report);
  const LossScaleState& state() const { return host_.state(); }

  // For a checkpoint; every step must have been followed.
  std::map<std::string, double> scalars() const;
  // `steps_done`: what applied_steps is taken as in checkpoints that do not hold it.
  void restore(const std::map<std::string, double>& scalars, int64_t steps_done);

 private:
  LossScaler host_;
  std::optional<DeviceLossScaler> device_;
  at::Tensor skip_;
  int64_t num_unknown_steps_ = 0;
};

}  // namespace dslaunch::runtime::precision
