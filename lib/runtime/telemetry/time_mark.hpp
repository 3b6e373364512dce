// A point in time of running work: on the host's clock, and for a device also in its current stream. Taking a mark
// never waits. One thread per mark.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <chrono>
#include <optional>

namespace dslaunch::runtime {

struct TimeMark {
  std::optional<c10::Event> event;  // on a device: when its current stream reaches this point
  std::chrono::steady_clock::time_point host;
};

TimeMark mark_time(at::Device device);
// Whether the device has reached the mark. Always true on the host.
bool is_reached(const TimeMark& mark);
// The time between two marks of one device; waits for the device to reach the later one.
double milliseconds_between(const TimeMark& earlier, const TimeMark& later);

}  // namespace dslaunch::runtime
