// Measures how long steps take where they run: with events on a device's stream, on the host with its clock. One
// thread.
#pragma once
#include "runtime/telemetry/time_mark.hpp"

namespace dslaunch::runtime::engine::step {

class StepClock {
 public:
  using Mark = TimeMark;

  // Starts now, by the host's clock, so that the first step includes its set-up.
  explicit StepClock(at::Device device);

  Mark mark() const { return mark_time(device_); }
  // From the last mark read, or restart, to `end`; waits for the device to reach it.
  double milliseconds_until(Mark end);
  void restart() { last_ = mark(); }

 private:
  const at::Device device_;
  Mark last_;
};

}  // namespace dslaunch::runtime::engine::step
