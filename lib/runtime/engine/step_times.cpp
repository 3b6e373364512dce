#include "runtime/engine/step_times.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "base/format.hpp"

namespace dslaunch::runtime {

void StepTimes::begin_step() {
  if (!enabled_) return;
  milliseconds_.fill(0);
  wait_for_device();
  last_ = std::chrono::steady_clock::now();
}

void StepTimes::end(StepPhase phase) {
  if (!enabled_) return;
  wait_for_device();
  const auto now = std::chrono::steady_clock::now();
  milliseconds_[static_cast<size_t>(phase)] += std::chrono::duration<double, std::milli>(now - last_).count();
  last_ = now;
}

std::string StepTimes::line() const {
  if (!enabled_) return {};
  static constexpr std::array<const char*, kNumPhases> kNames{"forward", "backward", "reduce", "update", "gather"};
  std::string out = "time (ms)";
  for (size_t i = 0; i < kNumPhases; ++i) out += fmt::format(" | {}: {:.2f}", kNames[i], milliseconds_[i]);
  return out;
}

void StepTimes::wait_for_device() const {
  if (!device_.is_cpu()) c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
}

}  // namespace dslaunch::runtime
