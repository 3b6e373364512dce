// Records what a step's time goes to: kernels and copies on a GPU (CUPTI, through LibTorch's profiler), operators on a
// CPU. One thread.
#pragma once
#include <c10/core/Device.h>

#include <optional>
#include <vector>

#include "runtime/engine/bench/step_measurement.hpp"
#include "runtime/telemetry/device_work.hpp"
#include "runtime/telemetry/kernel_recorder.hpp"
#include "runtime/telemetry/operator_times.hpp"

namespace dslaunch::runtime::engine::bench {

class StepProfiler {
 public:
  // From now on; nothing runs on the device.
  explicit StepProfiler(at::Device device);
  // Until now; the device has finished. Without num_steps and wall_ms. Empty where the driver does not let CUPTI
  // record.
  StepProfile take();

 private:
  std::optional<KernelRecorder> kernels_;
  std::optional<OperatorTimes> operators_;
};

// By name, and the time in which any of them ran. Pure.
StepProfile profile_of(const std::vector<DeviceSpan>& spans);

}  // namespace dslaunch::runtime::engine::bench
