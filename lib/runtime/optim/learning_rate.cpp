#include "runtime/optim/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.hpp"

namespace dslaunch::runtime::optim {
namespace {

// A warm-up of one step has no logarithm to divide by.
int64_t warmup_steps(const config::Scheduler& scheduler) {
  return std::max<int64_t>(2, scheduler.warmup_num_steps);
}

// From 0 at index 0 towards 1 at the end of the warm-up.
double warmup_gamma(const config::Scheduler& scheduler, int64_t index) {
  const auto steps = static_cast<double>(warmup_steps(scheduler));
  if (scheduler.warmup_type == config::WarmupType::kLinear) return static_cast<double>(index) / steps;
  return std::log(static_cast<double>(index + 1)) / std::log(steps);
}

// What follows the warm-up of WarmupDecayLR: a straight line to 0 at `total`.
double decay_gamma(int64_t warmup, int64_t total, int64_t index) {
  return std::max(0.0, static_cast<double>(total - index) / static_cast<double>(std::max<int64_t>(1, total - warmup)));
}

double interpolated_rate(const config::Scheduler& scheduler, double base_lr, int64_t total, int64_t index) {
  const double low = scheduler.warmup_min_lr;
  const double high = scheduler.warmup_max_lr.value_or(base_lr);
  if (index < 0) return low;
  double gamma = 1.0;
  if (index < warmup_steps(scheduler)) {
    gamma = warmup_gamma(scheduler, index);
  } else if (scheduler.type == config::SchedulerType::kWarmupDecayLR) {
    gamma = decay_gamma(warmup_steps(scheduler), total, index);
  }
  return low + (high - low) * gamma;
}

// Not clamped behind `total`: the cosine turns up again, as it does in DeepSpeed.
double cosine_ratio(const config::Scheduler& scheduler, int64_t total, int64_t index) {
  if (index < 0) return 0.0;
  const int64_t warmup = warmup_steps(scheduler);
  if (index < warmup) {
    return scheduler.warmup_min_ratio + (1.0 - scheduler.warmup_min_ratio) * warmup_gamma(scheduler, index);
  }
  const double floor = scheduler.cos_min_ratio;
  if (total == warmup) return std::max(0.0, floor);
  const double angle = std::numbers::pi * static_cast<double>(index - warmup + 1) / static_cast<double>(total - warmup);
  const double cosine = (1.0 + std::cos(angle)) / 2.0;
  return std::max(0.0, floor + (1.0 - floor) * cosine);
}

}  // namespace

double learning_rate(const config::Scheduler& scheduler, double base_lr, int64_t total_run_steps,
                     int64_t applied_steps) {
  DSL_CHECK(applied_steps >= 0, "a negative count of applied steps");
  const int64_t index = applied_steps - 1;
  const int64_t total = scheduler.total_num_steps.value_or(total_run_steps);
  switch (scheduler.type) {
    case config::SchedulerType::kNone:
      return base_lr;
    case config::SchedulerType::kWarmupLR:
    case config::SchedulerType::kWarmupDecayLR:
      return interpolated_rate(scheduler, base_lr, total, index);
    case config::SchedulerType::kWarmupCosineLR:
      return base_lr * cosine_ratio(scheduler, total, index);
  }
  throw InternalError(__FILE__, __LINE__, "scheduler.type", "unknown scheduler type");
}

}  // namespace dslaunch::runtime::optim
