// Where a step stands: the engine says which phase has ended, observers make times, traces or profiles of it. Without
// observers it costs nothing. One thread.
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
  // All that was issued since the call before belongs to `phase`. Forward and backward alternate over micro steps.
  virtual void end_phase(StepPhase phase) = 0;
  virtual void end_step() = 0;  // all of it is issued; a device may still be at work
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
