#include "runtime/telemetry/time_mark.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace dslaunch::runtime {

TimeMark mark_time(at::Device device) {
  TimeMark mark{std::nullopt, std::chrono::steady_clock::now()};
  if (!device.is_cpu()) {
    mark.event.emplace(device.type(), c10::EventFlag::BACKEND_DEFAULT);  // an event with timing enabled
    mark.event->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  return mark;
}

bool is_reached(const TimeMark& mark) {
  return !mark.event || mark.event->query();
}

double milliseconds_between(const TimeMark& earlier, const TimeMark& later) {
  if (!earlier.event || !later.event)
    return std::chrono::duration<double, std::milli>(later.host - earlier.host).count();
  later.event->synchronize();
  return earlier.event->elapsedTime(*later.event);
}

}  // namespace dslaunch::runtime
