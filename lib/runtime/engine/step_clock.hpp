// How long steps take, measured where they run: by events on a device's stream, by the host's clock on the host. One
// thread.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <chrono>
#include <optional>

namespace dslaunch::runtime {

class StepClock {
 public:
  // A point in the device's work (or on the host's clock).
  struct Mark {
    std::optional<c10::Event> event;
    std::chrono::steady_clock::time_point host;
  };

  // Starts running now, by the host's clock: the first step's set-up counts.
  explicit StepClock(at::Device device);

  Mark mark() const;
  // From the last mark read, or restart, to this one; waits for the device to reach it.
  double milliseconds_until(Mark end);
  void restart() { last_ = mark(); }

 private:
  const at::Device device_;
  Mark last_;
};

}  // namespace dslaunch::runtime
