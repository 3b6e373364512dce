// When each stage of a pipeline did what in one step: from the simulator, or measured. Pure; any thread.
#pragma once
#include <string>
#include <vector>

#include "runtime/pipeline/schedule.hpp"

namespace dslaunch::runtime::pipeline {

struct TimedAction {
  Action action;
  double begin = 0, end = 0;  // since the begin of the step, in any unit
};

// Of one stage, in the order of its plan.
using StageTimeline = std::vector<TimedAction>;

struct Timeline {
  std::vector<StageTimeline> stages;

  double duration() const;          // until the last computation has ended
  double busy(size_t stage) const;  // the time in computations
  // The share of the duration in which a stage does not compute, and the mean of all stages.
  double idle_share(size_t stage) const;
  double bubble() const;
};

// Counted in micro batches; both follow from the plan's order alone.
struct StageMemory {
  int live_activations = 0;           // most micro batches at a time between their forward and the end of its backward
  int deferred_weight_gradients = 0;  // zb-h1: most micro batches at a time whose weight gradient is still to come
};
StageMemory peak_memory(const std::vector<Action>& plan);

// One line per stage with a cell per time slot of length `slot`: what the stage computes in the middle of the slot, "."
// where it is idle. Longer lines than `max_width` characters are continued in further blocks of lines; 0: never.
std::string format_table(const Timeline& timeline, double slot, size_t max_width);

}  // namespace dslaunch::runtime::pipeline
