// The learning rate as a pure function of the number of applied steps: no state, so a resumed run needs only that
// number (a step skipped because of an overflow does not count). Any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "config/job_config.hpp"
#include "runtime/optim/optimizer_groups.hpp"
#include "runtime/optim/step_rates.hpp"

namespace dslaunch::runtime::optim {

// The rate that the next optimizer step uses after `applied_steps` steps, as DeepSpeed 0.18.2 computes it: its
// scheduler is at index applied_steps - 1 (-1 before the first step, where the start value applies), so that the first
// two steps of a warm-up from 0 both use 0. `base_lr` is the rate of the optimizer group, `group` its index, for values
// that differ by group. `total_run_steps` replaces a total_num_steps of "auto". Two deviations: a WarmupCosineLR whose
// total_num_steps equals its warm-up stays at cos_min_ratio afterwards, where DeepSpeed divides by zero; and a WarmupLR
// without warmup_max_lr rises to each group's own rate, where DeepSpeed uses the first group's rate for all groups.
double learning_rate(const config::Scheduler& scheduler, double base_lr, int64_t total_run_steps, int64_t applied_steps,
                     size_t group = 0);

// The rates of all groups for the step after `applied_steps`, with the betas that a OneCycle with cycled momentum sets.
StepRates step_rates(const config::Scheduler& scheduler, const OptimizerGroups& groups, int64_t total_run_steps,
                     int64_t applied_steps);

// How the rate ends in a run of `total_run_steps` steps whose schedule has another number of steps; empty: it has the
// same, or no end. `base_lr` and `group` as above.
struct ScheduleEnd {
  bool rises = false;  // after its end
  std::string text;    // a sentence with both numbers and the rates
};
std::optional<ScheduleEnd> describe_schedule_end(const config::Scheduler& scheduler, double base_lr,
                                                 int64_t total_run_steps, size_t group);

}  // namespace dslaunch::runtime::optim
