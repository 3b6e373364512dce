// The forms of `dslaunch plan`: each is what the command line asked for, and becomes a text or a JSON document.
#pragma once
#include <string>
#include <vector>

#include "runtime/memory_plan/deepspeed_estimates.hpp"
#include "runtime/pipeline/schedule.hpp"
#include "runtime/pipeline/simulate.hpp"

namespace dslaunch::launcher {

// --schedule P,M
struct SchedulePlan {
  runtime::pipeline::ScheduleKind kind = runtime::pipeline::ScheduleKind::k1F1B;
  int num_stages = 1, num_micro_batches = 1;
  runtime::pipeline::ActionTimes times;  // in time slots, whole numbers
};

// --params N: DeepSpeed's tables of memory.
struct EstimatePlan {
  runtime::memory_plan::EstimateInputs inputs;  // largest_layer 0: not given; the table of stage 3 is left out
};

// MODEL.pt: what the file's model and a config need; dsworker reads it.
struct ModelPlan {
  std::string model;
  std::vector<std::string> worker_words;
};

std::string describe(const SchedulePlan& plan, bool json);
std::string describe(const EstimatePlan& plan, bool json);

}  // namespace dslaunch::launcher
