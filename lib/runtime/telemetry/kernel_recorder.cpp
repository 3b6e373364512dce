#include "runtime/telemetry/kernel_recorder.hpp"

#include <kineto/ActivityType.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/log.hpp"

namespace dslaunch::runtime {
namespace {

// Of an activity that occupies a stream.
std::optional<DeviceWork> work_of(const torch::autograd::profiler::KinetoEvent& event) {
  if (event.deviceType() != at::kCUDA) return std::nullopt;
  using libkineto::ActivityType;
  switch (static_cast<ActivityType>(event.activityType())) {
    case ActivityType::CONCURRENT_KERNEL:
      return work_of_kernel(event.name());
    case ActivityType::GPU_MEMCPY:
    case ActivityType::GPU_MEMSET:
      return DeviceWork::kCopy;
    default:
      return std::nullopt;
  }
}

}  // namespace

KernelRecorder::~KernelRecorder() {
  stop();
}

void KernelRecorder::start() {
  namespace impl = torch::profiler::impl;
  const impl::ProfilerConfig config(impl::ProfilerState::KINETO);
  const std::set<impl::ActivityType> activities{impl::ActivityType::CUDA};
  try {
    torch::autograd::profiler::prepareProfiler(config, activities);
    torch::autograd::profiler::enableProfiler(config, activities);
    is_recording_ = true;
  } catch (const c10::Error& error) {
    log::warning("no kernels are recorded: LibTorch's profiler did not start: {}", error.what_without_backtrace());
  }
}

std::vector<DeviceSpan> KernelRecorder::stop(std::chrono::sys_time<std::chrono::nanoseconds> origin) {
  const auto microseconds = [&](uint64_t since_1970_ns) {
    return static_cast<double>(static_cast<int64_t>(since_1970_ns) - origin.time_since_epoch().count()) / 1e3;
  };
  std::vector<DeviceSpan> spans;
  if (!std::exchange(is_recording_, false)) return spans;
  try {
    const auto result = torch::autograd::profiler::disableProfiler();
    for (const auto& event : result->events()) {
      if (const auto work = work_of(event)) {
        spans.push_back({event.name(), *work, event.deviceResourceId(), microseconds(event.startNs()),
                         microseconds(event.endNs())});
      }
    }
  } catch (const c10::Error& error) {
    log::warning("no kernels are recorded: LibTorch's profiler failed: {}", error.what_without_backtrace());
    return {};
  }
  if (spans.empty()) log::warning("no kernels are recorded: LibTorch's profiler recorded none (is CUPTI permitted?)");
  std::sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) { return a.begin_us < b.begin_us; });
  return spans;
}

}  // namespace dslaunch::runtime
