// The options of `dslaunch plan`.
#pragma once
#include <optional>
#include <variant>

#include "arguments.hpp"
#include "plan_forms.hpp"

namespace dslaunch::launcher {

struct PlanOptions {
  std::variant<SchedulePlan, EstimatePlan, ModelPlan> form;
  bool json = false;
};

// Throws UserError(64) for invalid options. Empty: help was requested and printed.
std::optional<PlanOptions> read_plan_options(const Arguments& arguments);

}  // namespace dslaunch::launcher
