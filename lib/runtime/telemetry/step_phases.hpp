// The progress of a step: the engine reports the end of each phase; observers compute times, traces or profiles from
// it. Without observers there is no overhead. One thread.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace dslaunch::runtime {

enum class StepPhase { kForward, kBackward, kReduce, kUpdate, kGather };
std::string_view name_of(StepPhase phase);  // "forward"

class StepObserver {
 public:
  virtual ~StepObserver() = default;
  virtual void begin_step(int64_t step) = 0;  // counts from 1
  // Everything issued since the previous call belongs to `phase`. Forward and backward alternate over accumulation
  // steps.
  virtual void end_phase(StepPhase phase) = 0;
  virtual void end_step() = 0;  // everything is issued; a device may still be working
};

class StepPhases {
 public:
  // `observer` must outlive all calls.
  void add(StepObserver& observer) { observers_.push_back(&observer); }
  bool is_observed() const { return !observers_.empty(); }

  void begin_step(int64_t step) {
    for (auto* observer : observers_) observer->begin_step(step);
  }
  void end(StepPhase phase) {
    for (auto* observer : observers_) observer->end_phase(phase);
  }
  void end_step() {
    for (auto* observer : observers_) observer->end_step();
  }

 private:
  std::vector<StepObserver*> observers_;
};

}  // namespace dslaunch::runtime
