// The options of `dslaunch plan`.
#pragma once
#include <optional>

#include "arguments.hpp"
#include "runtime/pipeline/schedule.hpp"
#include "runtime/pipeline/simulate.hpp"

namespace dslaunch::launcher {

struct PlanOptions {
  runtime::pipeline::ScheduleKind kind = runtime::pipeline::ScheduleKind::k1F1B;
  int num_stages = 1, num_micro_batches = 1;
  runtime::pipeline::ActionTimes times;  // in time slots, whole numbers
  bool json = false;
};

// Throws UserError(64) for invalid options. Empty: help was requested and printed.
std::optional<PlanOptions> read_plan_options(const Arguments& arguments);

}  // namespace dslaunch::launcher
