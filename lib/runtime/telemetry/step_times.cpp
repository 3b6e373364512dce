#include "runtime/telemetry/step_times.hpp"

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime {
namespace {

void add(PhaseTimes& to, const TimedPhase& timed) {
  switch (timed.phase) {
    case StepPhase::kForward:
      to.forward += timed.milliseconds;
      break;
    case StepPhase::kBackward:
      to.backward_inner += timed.milliseconds;
      to.backward += timed.milliseconds;
      break;
    case StepPhase::kReduce:
      to.backward_reduce += timed.milliseconds;
      to.backward += timed.milliseconds;
      break;
    case StepPhase::kUpdate:
    case StepPhase::kGather:
      to.step += timed.milliseconds;
      break;
  }
}

std::string format_times(const PhaseTimes& times, const char* ending) {
  return fmt::format(
             "time (ms) | fwd{4}: {0:.2f} | bwd{4}: {1:.2f} | bwd_inner{4}: {2:.2f} | bwd_allreduce{4}: {3:.2f}",
             times.forward, times.backward, times.backward_inner, times.backward_reduce, ending) +
         fmt::format(" | step{}: {:.2f}", ending, times.step);
}

}  // namespace

std::string_view name_of(StepPhase phase) {
  switch (phase) {
    case StepPhase::kForward:
      return "forward";
    case StepPhase::kBackward:
      return "backward";
    case StepPhase::kReduce:
      return "reduce";
    case StepPhase::kUpdate:
      return "update";
    case StepPhase::kGather:
      return "gather";
  }
  return "?";
}

StepBreakdown break_down(const std::vector<TimedPhase>& phases) {
  StepBreakdown out;
  for (const auto& timed : phases) {
    if (timed.phase == StepPhase::kForward) out.last_accumulation_step = {};
    add(out.last_accumulation_step, timed);
    add(out.step, timed);
  }
  return out;
}

std::string format_accumulation_step_times(const PhaseTimes& times) {
  return format_times(times, "_microstep");
}

std::string format_step_times(const PhaseTimes& times) {
  return format_times(times, "");
}

void StepTimes::begin_step(int64_t) {
  steps_.push_back({mark_time(device_), {}});
}

void StepTimes::end_phase(StepPhase phase) {
  steps_.back().ends.emplace_back(phase, mark_time(device_));
}

StepBreakdown StepTimes::take() {
  DSL_CHECK(!steps_.empty(), "a step is timed before it is taken");
  const Step step = std::move(steps_.front());
  steps_.pop_front();
  std::vector<TimedPhase> phases;
  const TimeMark* last = &step.begin;
  for (const auto& [phase, end] : step.ends) {
    phases.push_back({phase, milliseconds_between(*last, end)});
    last = &end;
  }
  return break_down(phases);
}

}  // namespace dslaunch::runtime
