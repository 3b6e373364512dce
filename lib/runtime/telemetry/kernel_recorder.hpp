// Records every kernel and copy that this process runs on a GPU, with its stream and times, through LibTorch's profiler
// (Kineto on CUPTI). Start and stop on one thread; what other threads launch is recorded too. Recording costs about a
// second at the first start, and some microseconds a kernel.
#pragma once
#include <chrono>
#include <vector>

#include "runtime/telemetry/device_work.hpp"

namespace dslaunch::runtime {

class KernelRecorder {
 public:
  KernelRecorder() = default;
  KernelRecorder(const KernelRecorder&) = delete;
  ~KernelRecorder();

  // Warns, here or in stop(), where the driver or another profiler forbids it.
  void start();
  // What ran since start(), in order of its begin, in microseconds since `origin`; the device must have finished. Empty
  // where nothing was recorded.
  std::vector<DeviceSpan> stop(std::chrono::sys_time<std::chrono::nanoseconds> origin = {});

 private:
  bool is_recording_ = false;
};

}  // namespace dslaunch::runtime
