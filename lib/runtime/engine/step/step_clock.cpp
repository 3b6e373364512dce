#include "runtime/engine/step/step_clock.hpp"

namespace dslaunch::runtime::engine::step {

StepClock::StepClock(at::Device device) : device_(device) {
  last_.host = std::chrono::steady_clock::now();
}

double StepClock::milliseconds_until(Mark end) {
  if (end.event) {
    end.event->synchronize();
    if (!last_.event) end.host = std::chrono::steady_clock::now();  // the first step: from the start to its arrival
  }
  const double elapsed = milliseconds_between(last_, end);
  last_ = std::move(end);
  return elapsed;
}

}  // namespace dslaunch::runtime::engine::step
