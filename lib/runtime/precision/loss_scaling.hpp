// Loss scaling as a training step uses it: scales the loss, removes the scale from the gradients' norm and factor,
// detects an overflow from the statistics of all ranks and updates the scale. Nothing here waits for the device; the
// host's scaler follows when a step's statistics arrive. Without a scale (fp32, bf16) tensors pass through unchanged
// and no step is ever skipped. One thread.
//
// In a step: scaled() before each backward; unscaled_squares(), detect_overflow(), unscaled_factor() once the gradients
// are reduced; skip() and applied_steps() for the optimizer; advance() after it; follow() when the host reads the
// report.
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
  // The sum of squares of the gradient without the scale. `squares`: 0-dim fp64, the sum of squares of this rank's part
  // of the scaled gradients.
  at::Tensor unscaled_squares(const at::Tensor& squares) const;
  // `values`: fp32, the same on all ranks; the step overflowed if one of them is not finite.
  void detect_overflow(const at::Tensor& values);
  // Turns the factor for the unscaled gradient into the factor for the scaled gradient; 0-dim fp32.
  at::Tensor unscaled_factor(const at::Tensor& factor) const;

  // 0-dim fp32, 1 if the step just judged is to be skipped; undefined without a scale.
  const at::Tensor& skip() const { return skip_; }
  // 0-dim int64 on the device, without the step just judged; undefined without a scale.
  at::Tensor applied_steps() const;
  // fp32 [2]: the values that follow() reads for this step, [skip, scale]; call it before advance().
  at::Tensor report() const;
  void advance();

  // The host's count; without a scale it includes the steps passed to advance(), otherwise those passed to follow().
  int64_t known_applied_steps() const { return host_.state().applied_steps; }
  // The steps that the host has not followed yet; each of them may have been applied.
  int64_t num_unknown_steps() const { return num_unknown_steps_; }
  // `report`: of the oldest step not followed yet, on the host. Throws InternalError when host and device disagree.
  ScaleChange follow(const float* report);
  const LossScaleState& state() const { return host_.state(); }

  // For a checkpoint; every step must have been followed.
  std::map<std::string, double> scalars() const;
  // `steps_done`: the value of applied_steps for checkpoints that do not store it.
  void restore(const std::map<std::string, double>& scalars, int64_t steps_done);

 private:
  LossScaler host_;
  std::optional<DeviceLossScaler> device_;
  at::Tensor skip_;
  int64_t num_unknown_steps_ = 0;
};

}  // namespace dslaunch::runtime::precision
