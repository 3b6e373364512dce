// Where a step's time goes ("wall_clock_breakdown"): forward, backward, reduce, update, gather. Off, it costs nothing;
// on, it waits for the device at every boundary, so steps are slower than without. One thread.
#pragma once
#include <c10/core/Device.h>

#include <array>
#include <chrono>
#include <string>

namespace dslaunch::runtime {

enum class StepPhase { kForward, kBackward, kReduce, kUpdate, kGather };

class StepTimes {
 public:
  StepTimes(bool enabled, at::Device device) : enabled_(enabled), device_(device) {}

  void begin_step();
  // The time since the last call belongs to `phase`.
  void end(StepPhase phase);
  // "time (ms) | forward: 1.20 | backward: 2.41 | reduce: 0.30 | update: 0.20 | gather: 0.10"; empty when off.
  std::string line() const;

 private:
  static constexpr size_t kNumPhases = 5;
  void wait_for_device() const;

  const bool enabled_;
  const at::Device device_;
  std::array<double, kNumPhases> milliseconds_{};
  std::chrono::steady_clock::time_point last_;
};

}  // namespace dslaunch::runtime
