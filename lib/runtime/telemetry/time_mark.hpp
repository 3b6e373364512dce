// A point in time where work runs: on the host's clock, and in the current stream of a device as well. Taking one never
// waits. One thread a mark.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <chrono>
#include <optional>

namespace dslaunch::runtime {

struct TimeMark {
  std::optional<c10::Event> event;  // on a device: when its current stream gets here
  std::chrono::steady_clock::time_point host;
};

TimeMark mark_time(at::Device device);
// Has the device come this far? True on the host.
bool is_reached(const TimeMark& mark);
// Between two marks of one device; waits for the device to reach the later one.
double milliseconds_between(const TimeMark& earlier, const TimeMark& later);

}  // namespace dslaunch::runtime
