// The breakdown of a step's time ("wall_clock_breakdown"): marks between its phases, in the device's stream, so that
// nothing waits inside a step; read after the device has finished. One thread.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "runtime/telemetry/step_phases.hpp"
#include "runtime/telemetry/time_mark.hpp"

namespace dslaunch::runtime {

// Milliseconds, by DeepSpeed's five timers: backward includes backward_inner (the backward pass itself) and
// backward_reduce (the part of the reduction after it); step is the update and the gather of updated parameters.
struct PhaseTimes {
  double forward = 0, backward = 0, backward_inner = 0, backward_reduce = 0, step = 0;
};

struct StepBreakdown {
  PhaseTimes last_accumulation_step;
  PhaseTimes step;
};

struct TimedPhase {
  StepPhase phase = StepPhase::kForward;
  double milliseconds = 0;
};
// Pure: every forward begins an accumulation step.
StepBreakdown break_down(const std::vector<TimedPhase>& phases);

// "time (ms) | fwd_microstep: 1.20 | bwd_microstep: …" and "time (ms) | fwd: …".
std::string format_accumulation_step_times(const PhaseTimes& times);
std::string format_step_times(const PhaseTimes& times);

class StepTimes final : public StepObserver {
 public:
  explicit StepTimes(at::Device device) : device_(device) {}

  void begin_step(int64_t step) override;
  void end_phase(StepPhase phase) override;
  void end_step() override {}
  // Of the oldest step that has not been taken yet; waits for the device to finish that step.
  StepBreakdown take();

 private:
  struct Step {
    TimeMark begin;
    std::vector<std::pair<StepPhase, TimeMark>> ends;
  };
  const at::Device device_;
  std::deque<Step> steps_;
};

}  // namespace dslaunch::runtime
