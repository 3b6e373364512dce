// The learning rate as a pure function of the steps applied so far: no state, so a resumed run needs nothing but the
// count of applied steps (a step that an overflow skipped does not count). Any thread.
#pragma once
#include <cstdint>

#include "config/job_config.hpp"
#include "runtime/optim/optimizer_groups.hpp"
#include "runtime/optim/step_rates.hpp"

namespace dslaunch::runtime::optim {

// The rate that the next optimizer step uses after `applied_steps` of them, as DeepSpeed 0.18.2 computes it: its
// scheduler stands at index applied_steps - 1 (-1 before the first step, where the start value holds), so that the
// first two steps of a warm-up from 0 both use 0. `base_lr` is the rate of the optimizer group, `group` its index, for
// values that differ by group. `total_run_steps` stands in for a total_num_steps that was left to "auto". Two
// deviations: a WarmupCosineLR whose total_num_steps equals its warm-up stays at cos_min_ratio afterwards, where
// DeepSpeed divides by zero; and a WarmupLR without warmup_max_lr rises to each group's own rate, where DeepSpeed takes
// that of the first group for all.
double learning_rate(const config::Scheduler& scheduler, double base_lr, int64_t total_run_steps, int64_t applied_steps,
                     size_t group = 0);

// The rates of all groups for the step after `applied_steps`, with the betas that a OneCycle of the momentum gives it.
StepRates step_rates(const config::Scheduler& scheduler, const OptimizerGroups& groups, int64_t total_run_steps,
                     int64_t applied_steps);

}  // namespace dslaunch::runtime::optim
