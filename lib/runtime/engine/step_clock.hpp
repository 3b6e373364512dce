// How long steps take, measured where they run: by events on a device's stream, by the host's clock on the host. One
// thread.
#pragma once
#include "runtime/telemetry/time_mark.hpp"

namespace dslaunch::runtime {

class StepClock {
 public:
  using Mark = TimeMark;

  // Starts running now, by the host's clock: the first step's set-up counts.
  explicit StepClock(at::Device device);

  Mark mark() const { return mark_time(device_); }
  // From the last mark read, or restart, to this one; waits for the device to reach it.
  double milliseconds_until(Mark end);
  void restart() { last_ = mark(); }

 private:
  const at::Device device_;
  Mark last_;
};

}  // namespace dslaunch::runtime
