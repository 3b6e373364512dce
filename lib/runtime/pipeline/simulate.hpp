// Carries out the plans of all stages on a clock: to print a schedule, and to prove that it ends and how long it takes.
// Pure; any thread.
#pragma once
#include <vector>

#include "runtime/pipeline/timeline.hpp"

namespace dslaunch::runtime::pipeline {

// How long an action takes, in any unit. A backward does the work of both of its parts.
struct ActionTimes {
  double forward = 1, input_gradient = 1, weight_gradient = 1;
  double transfer = 0;  // from the moment when both ends are ready

  double of(ActionKind kind) const;
};

// A transfer begins when both of its stages are ready for it (a rendezvous), as in NCCL for large messages.
enum class TransferOrder {
  // A stage does one thing after the other: it computes nothing until an exchange has ended. Gloo on the thread that
  // computes.
  kBlocking,
  // Exchanges have their own order, as on a CUDA stream of their own: one begins when the exchange before it has ended
  // and what stands before it in the plan has been computed. A computation waits only for the exchange that it receives
  // its input in.
  kConcurrent,
};

struct Simulation {
  struct Blocked {
    int stage = 0;
    Action action;  // the first of its plan that has not ended
  };

  Timeline timeline;              // after a deadlock, with times of 0 for what has not ended
  std::vector<Blocked> deadlock;  // every stage that has not reached the end of its plan; empty: all have
};

// `plans`: of the stages 0, 1, ... `times`: of each stage, or one for all. Throws InternalError if the plans do not fit
// together: a receive that meets another send than its own, or a backward without its forward.
Simulation simulate(const std::vector<std::vector<Action>>& plans, const std::vector<ActionTimes>& times,
                    TransferOrder order);

// plan_schedule() for every stage.
std::vector<std::vector<Action>> plan_all_stages(ScheduleKind kind, int num_stages, int num_micro_batches);

// "stage 0: send activation 1; stage 1: ..."
std::string describe(const std::vector<Simulation::Blocked>& deadlock);

}  // namespace dslaunch::runtime::pipeline
