#include "runtime/engine/step_clock.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace dslaunch::runtime {

StepClock::StepClock(at::Device device) : device_(device) {
  last_.host = std::chrono::steady_clock::now();
}

StepClock::Mark StepClock::mark() const {
  Mark mark{std::nullopt, std::chrono::steady_clock::now()};
  if (!device_.is_cpu()) {
    mark.event.emplace(device_.type(), c10::EventFlag::BACKEND_DEFAULT);  // one that takes times
    mark.event->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }
  return mark;
}

double StepClock::milliseconds_until(Mark end) {
  if (end.event) {
    end.event->synchronize();
    if (!last_.event) end.host = std::chrono::steady_clock::now();  // the first step: from the start to its arrival
  }
  const bool on_device = end.event && last_.event;
  const double elapsed = on_device ? last_.event->elapsedTime(*end.event)
                                   : std::chrono::duration<double, std::milli>(end.host - last_.host).count();
  last_ = std::move(end);
  return elapsed;
}

}  // namespace dslaunch::runtime
