#include "runtime/engine/step/issue_clock.hpp"

#include <chrono>

#include "base/error.hpp"

namespace dslaunch::runtime::engine::step {

void IssueClock::start() {
  forward_.reset();
  is_measuring_ = true;
  start_ = mark_time(device_);
}

void IssueClock::end_phase(StepPhase phase) {
  if (is_measuring_ && phase == StepPhase::kForward && !forward_) forward_ = mark_time(device_);
}

void IssueClock::stop() {
  end_ = mark_time(device_);
  is_measuring_ = false;
}

IssueTime IssueClock::until(const TimeMark& end) const {
  return {std::chrono::duration<double, std::milli>(end.host - start_.host).count(), milliseconds_between(start_, end)};
}

PassTiming IssueClock::timing() const {
  DSL_CHECK(forward_.has_value(), "a pass begins with a forward");
  return {until(*forward_), until(end_)};
}

}  // namespace dslaunch::runtime::engine::step
