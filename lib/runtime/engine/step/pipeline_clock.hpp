// When each stage of a pipeline computed what in one step: the measured counterpart of a simulated timeline. One
// thread.
#pragma once
#include <ATen/record_function.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/communicator.hpp"
#include "runtime/pipeline/timeline.hpp"
#include "runtime/telemetry/step_phases.hpp"
#include "runtime/telemetry/time_mark.hpp"

namespace dslaunch::runtime::engine::step {

class PipelineClock final : public StepObserver {
 public:
  // `step` counts from 1. `pipe`: the ranks of all stages, in their order; must outlive this object.
  PipelineClock(int64_t step, comm::Communicator& pipe, at::Device device);

  // The stages begin the measured step together, so that their clocks have one origin: to within the time that a
  // barrier takes to let all of them go.
  void begin_step(int64_t step) override;
  void end_phase(StepPhase) override {}
  void end_step() override;

  // The time of an action that computes, without the wait for what it receives; profilers see it as a scope, too.
  class Span {
   public:
    // `clock`: may be null. `action` must outlive this object.
    Span(PipelineClock* clock, const pipeline::Action& action);
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    PipelineClock* const clock_;  // null where nothing is measured
    const pipeline::Action& action_;
    std::optional<TimeMark> begin_;
    at::RecordFunction scope_{at::RecordScope::USER_SCOPE};
  };

  // The computations of all stages, in milliseconds since the first of them began; once, after the step. A collective
  // of the pipeline then; empty before and after. Waits for the device.
  std::optional<pipeline::Timeline> take();

 private:
  enum class State { kBefore, kMeasuring, kMeasured, kTaken };
  struct Measured {
    pipeline::Action action;
    TimeMark begin, end;
  };

  const int64_t step_;
  comm::Communicator& pipe_;
  const at::Device device_;
  State state_ = State::kBefore;
  TimeMark origin_;
  std::vector<Measured> measured_;
};

}  // namespace dslaunch::runtime::engine::step
