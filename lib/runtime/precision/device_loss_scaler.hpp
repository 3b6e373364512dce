// The loss scaler on the device: the same state machine as loss_scaler.hpp over scalars that never leave the device, so
// that a step can use the scale, skip its update and continue with the next step before the host knows the outcome. All
// calls enqueue on the current stream and return; the scalars keep their addresses. One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include "runtime/precision/loss_scaler.hpp"

namespace dslaunch::runtime::precision {

class DeviceLossScaler {
 public:
  DeviceLossScaler(const config::LossScale& policy, at::Device device);

  const at::Tensor& scale() const { return scale_; }                  // 0-dim fp64
  const at::Tensor& applied_steps() const { return applied_steps_; }  // 0-dim int64
  // `overflow`: 0-dim bool on the device: whether the step overflowed.
  void update(const at::Tensor& overflow);

  void set(const LossScaleState& state);
  LossScaleState read() const;  // waits for the device; overflows_in_row is kept by the host only and stays 0

 private:
  const config::LossScale policy_;
  at::Tensor scale_;
  at::Tensor counts_;  // int64: the four below
  at::Tensor iteration_, last_overflow_, budget_, applied_steps_;
};

}  // namespace dslaunch::runtime::precision
