// The learning rate as a pure function of the steps applied so far: no state, so a resumed run needs nothing but the
// count of applied steps (a step that an overflow skipped does not count). Any thread.
#pragma once
#include <cstdint>

#include "config/job_config.hpp"

namespace dslaunch::runtime::optim {

// The rate that the next optimizer step uses after `applied_steps` of them, as DeepSpeed 0.18.2 computes it: its
// scheduler stands at index applied_steps - 1 (-1 before the first step, where the start value holds), so that the
// first two steps of a warm-up from 0 both use 0. `base_lr` is the optimizer's rate. `total_run_steps` stands in for a
// total_num_steps that was left to "auto". One deviation: a WarmupCosineLR whose total_num_steps equals its warm-up
// stays at cos_min_ratio afterwards, where DeepSpeed divides by zero.
double learning_rate(const config::Scheduler& scheduler, double base_lr, int64_t total_run_steps,
                     int64_t applied_steps);

}  // namespace dslaunch::runtime::optim
