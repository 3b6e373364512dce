// Pipeline schedules as values: what a stage does in one step, in which order. One place decides it; the executor, the
// simulator and `dslaunch plan` only follow. Pure; any thread. Nothing of LibTorch: the launcher prints schedules.
//
// Stages are numbered from 0, where the inputs enter, to num_stages - 1, where the loss comes out. The micro batches of
// a step are those of its accumulation steps. "Activation" stands for all that a stage passes on to the next one.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/job_config.hpp"

namespace dslaunch::runtime::pipeline {

using ScheduleKind = config::PipelineSchedule;

enum class ActionKind : uint8_t {
  kForward,
  kBackward,           // the gradients of the stage's inputs and of its weights
  kInputGradient,      // the part of a backward that the previous stage waits for
  kWeightGradient,     // the rest of that backward, which no other stage waits for
  kSendActivation,     // the result of a forward, to the next stage
  kReceiveActivation,  // from the previous stage
  kSendGradient,       // of the stage's inputs, to the previous stage
  kReceiveGradient,    // of the stage's outputs, from the next stage
};

struct Action {
  ActionKind kind = ActionKind::kForward;
  int micro_batch = 0;

  friend bool operator==(const Action&, const Action&) = default;
};

bool is_transfer(ActionKind kind);
bool is_send(ActionKind kind);
// The stage that `stage` sends to or receives from in this transfer.
int peer_of(ActionKind transfer, int stage);

// The actions of `stage` in one training step.
//
// gpipe: all forwards, then all backwards; a stage keeps the activations of all micro batches.
// 1f1b: stage s does num_stages - s forwards, then a backward and a forward in turns, then the remaining backwards. It
// keeps the activations of at most num_stages - s micro batches.
// zb-h1 (Qi et al., "Zero Bubble Pipeline Parallelism", 2023): as 1f1b, with each backward in two parts. The previous
// stage needs to wait for the first part only, and stage s does the second part s micro batches later, so that the last
// of them fill the time in which it would wait at the end. It keeps as many activations as in 1f1b, and what the
// second parts need of at most s + 1 micro batches.
//
// With one stage, every kind is F0 B0 F1 B1 ...: there is nothing to wait for.
//
// Every transfer has its counterpart in the plan of the neighbour, and those of two neighbours are in the same order.
// Transfers that are adjacent in the plan must be issued as one group (exchange_at): one after the other they would
// deadlock where both neighbours begin with the send.
std::vector<Action> plan_schedule(ScheduleKind kind, int num_stages, int stage, int num_micro_batches);

// The actions of `stage` in an evaluation: forwards only. The same guarantees.
std::vector<Action> plan_evaluation(int num_stages, int stage, int num_micro_batches);

// The transfers that are issued as one group, beginning with plan[begin]: all that follow each other there. Empty if
// plan[begin] computes.
std::span<const Action> exchange_at(std::span<const Action> plan, size_t begin);

// "1f1b", as in the job file
std::string_view name_of(ScheduleKind kind);
// "forward", "send gradient"
std::string_view name_of(ActionKind kind);
// "forward 3", "send gradient 0"
std::string describe(const Action& action);
// The action as a cell of a table: "F3", "B3", "I3", "W3"; transfers "SA3", "RA3", "SG3", "RG3".
std::string label(const Action& action);

}  // namespace dslaunch::runtime::pipeline
