// How long the host takes to issue the work of a gradient pass, and how long it takes until the device has computed it.
// One thread.
#pragma once
#include <c10/core/Device.h>

#include <optional>

#include "runtime/engine/step/capture_decision.hpp"
#include "runtime/telemetry/step_phases.hpp"
#include "runtime/telemetry/time_mark.hpp"

namespace dslaunch::runtime::engine::step {

class IssueClock final : public StepObserver {
 public:
  explicit IssueClock(c10::Device device) : device_(device) {}

  // The device must be idle; the pass must be issued next, with nothing to wait for (its data).
  void start();
  void stop();  // everything is issued
  // Waits for the device.
  PassTiming timing() const;

  void begin_step(int64_t) override {}
  void end_phase(StepPhase phase) override;  // the first forward's
  void end_step() override {}

 private:
  IssueTime until(const TimeMark& end) const;

  const c10::Device device_;
  TimeMark start_, end_;
  std::optional<TimeMark> forward_;
  bool is_measuring_ = false;
};

}  // namespace dslaunch::runtime::engine::step
