#include "runtime/optim/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::optim {
namespace {

// At least 2: with a warm-up of one step the formula would divide by log(1) = 0.
int64_t warmup_steps(const config::Scheduler& scheduler) {
  return std::max<int64_t>(2, scheduler.warmup_num_steps);
}

// Rises from 0 at index 0 towards 1 at the end of the warm-up.
double warmup_gamma(const config::Scheduler& scheduler, int64_t index) {
  const auto steps = static_cast<double>(warmup_steps(scheduler));
  if (scheduler.warmup_type == config::WarmupType::kLinear) return static_cast<double>(index) / steps;
  return std::log(static_cast<double>(index + 1)) / std::log(steps);
}

// WarmupDecayLR after the warm-up: a straight line to 0 at `total`.
double decay_gamma(int64_t warmup, int64_t total, int64_t index) {
  return std::max(0.0, static_cast<double>(total - index) / static_cast<double>(std::max<int64_t>(1, total - warmup)));
}

double interpolated_rate(const config::Scheduler& scheduler, double base_lr, int64_t total, int64_t index,
                         size_t group) {
  const double low = scheduler.warmup_min_lr.of(group);
  const double high = scheduler.warmup_max_lr ? scheduler.warmup_max_lr->of(group) : base_lr;
  if (index < 0) return low;
  double gamma = 1.0;
  if (index < warmup_steps(scheduler)) {
    gamma = warmup_gamma(scheduler, index);
  } else if (scheduler.type == config::SchedulerType::kWarmupDecayLR) {
    gamma = decay_gamma(warmup_steps(scheduler), total, index);
  }
  return low + (high - low) * gamma;
}

// Not clamped after `total`: the cosine rises again, as it does in DeepSpeed.
double cosine_ratio(const config::Scheduler& scheduler, int64_t total, int64_t index, size_t group) {
  if (index < 0) return 0.0;
  const int64_t warmup = warmup_steps(scheduler);
  if (index < warmup) {
    const double start = scheduler.warmup_min_ratio.of(group);
    return start + (1.0 - start) * warmup_gamma(scheduler, index);
  }
  const double floor = scheduler.cos_min_ratio.of(group);
  if (total == warmup) return std::max(0.0, floor);
  const double angle = std::numbers::pi * static_cast<double>(index - warmup + 1) / static_cast<double>(total - warmup);
  const double cosine = (1.0 + std::cos(angle)) / 2.0;
  return std::max(0.0, floor + (1.0 - floor) * cosine);
}

double range_test_rate(const config::Scheduler& scheduler, int64_t index, size_t group) {
  double interval = static_cast<double>(index + 1) / static_cast<double>(scheduler.range_step_size);
  if (scheduler.range_staircase) interval = std::floor(interval);
  return scheduler.range_min_lr.of(group) * (1 + scheduler.range_step_rate * interval);
}

// The position in OneCycle: first up, then down over the two parts of the cycle, then decaying.
struct CyclePosition {
  bool in_cycle = true;
  double height = 0.0;  // fraction of the distance from the minimum to the maximum, 0 to 1
  double decays = 0.0;  // decay steps since the end of the cycle, with fractions
};

CyclePosition cycle_position(const config::Scheduler& scheduler, int64_t index) {
  const auto first = static_cast<double>(scheduler.cycle_first_step_size);
  const auto second = static_cast<double>(scheduler.cycle_second_step_size.value_or(scheduler.cycle_first_step_size));
  const double total = first + second;
  if (static_cast<double>(index) < total) {
    const double ratio = first / total;
    const double passed = static_cast<double>(index + 1) / total;
    const double x = 1.0 + passed - std::floor(1.0 + passed);
    return {true, x <= ratio ? x / ratio : (x - 1.0) / (ratio - 1.0), 0.0};
  }
  if (scheduler.decay_step_size == 0) return {false, 0.0, 0.0};
  return {false, 0.0, (static_cast<double>(index) - total + 1.0) / static_cast<double>(scheduler.decay_step_size)};
}

double cycle_rate(const config::Scheduler& scheduler, int64_t index, size_t group) {
  const double low = scheduler.cycle_min_lr.of(group);
  if (index < 0) return low;
  const CyclePosition position = cycle_position(scheduler, index);
  if (position.in_cycle) return low + (scheduler.cycle_max_lr.of(group) - low) * position.height;
  return low / (1 + scheduler.decay_lr_rate * position.decays);
}

// Set together with the cycled beta1, as DeepSpeed does.
constexpr double kCycledBeta2 = 0.99;

// The first momentum (beta1) that OneCycle sets for the step after `applied_steps`; empty for a schedule that does not
// change it.
std::optional<double> cycled_momentum(const config::Scheduler& scheduler, int64_t applied_steps) {
  if (scheduler.type != config::SchedulerType::kOneCycle || !scheduler.cycle_momentum) return std::nullopt;
  const int64_t index = applied_steps - 1;
  const double low = scheduler.cycle_min_mom, high = scheduler.cycle_max_mom;
  if (index < 0) return low;
  const CyclePosition position = cycle_position(scheduler, index);
  if (position.in_cycle) return high - (high - low) * position.height;
  return high * (1 + scheduler.decay_mom_rate * position.decays);
}

}  // namespace

double learning_rate(const config::Scheduler& scheduler, double base_lr, int64_t total_run_steps, int64_t applied_steps,
                     size_t group) {
  DSL_CHECK(applied_steps >= 0, "a negative count of applied steps");
  const int64_t index = applied_steps - 1;
  const int64_t total = scheduler.total_num_steps.value_or(total_run_steps);
  switch (scheduler.type) {
    case config::SchedulerType::kNone:
      return base_lr;
    case config::SchedulerType::kWarmupLR:
    case config::SchedulerType::kWarmupDecayLR:
      return interpolated_rate(scheduler, base_lr, total, index, group);
    case config::SchedulerType::kWarmupCosineLR:
      return base_lr * cosine_ratio(scheduler, total, index, group);
    case config::SchedulerType::kLRRangeTest:
      return range_test_rate(scheduler, index, group);
    case config::SchedulerType::kOneCycle:
      return cycle_rate(scheduler, index, group);
  }
  throw InternalError(__FILE__, __LINE__, "scheduler.type", "unknown scheduler type");
}

StepRates step_rates(const config::Scheduler& scheduler, const OptimizerGroups& groups, int64_t total_run_steps,
                     int64_t applied_steps) {
  StepRates out{.step = applied_steps + 1};
  const auto momentum = cycled_momentum(scheduler, applied_steps);
  for (size_t i = 0; i < groups.groups.size(); ++i) {
    GroupRates rates{
        learning_rate(scheduler, groups.groups[i].settings.lr, total_run_steps, applied_steps, i), momentum, {}};
    if (momentum) rates.beta2 = kCycledBeta2;
    out.groups.push_back(rates);
  }
  out.lr = out.groups.at(static_cast<size_t>(groups.default_group)).lr;
  return out;
}

std::optional<ScheduleEnd> describe_schedule_end(const config::Scheduler& scheduler, double base_lr,
                                                 int64_t total_run_steps, size_t group) {
  const int64_t end = scheduler.total_num_steps.value_or(total_run_steps);
  if (!scheduler.has_end() || end == total_run_steps) return std::nullopt;
  const auto rate_of_step = [&](int64_t step) {
    return learning_rate(scheduler, base_lr, total_run_steps, std::max<int64_t>(0, step - 1), group);
  };
  const double last = rate_of_step(total_run_steps);
  if (end > total_run_steps) {
    return ScheduleEnd{false,
                       fmt::format("the run ends at step {} of the schedule's {}, with a learning rate of {:.4g}",
                                   total_run_steps, end, last)};
  }
  const double at_end = rate_of_step(end + 1);
  const bool rises = scheduler.type == config::SchedulerType::kWarmupCosineLR && last > at_end;
  const std::string then = rises ? fmt::format("rises again after it, as in DeepSpeed, from {:.4g}", at_end)
                                 : std::string("stays at its end after it");
  return ScheduleEnd{rises, fmt::format("the schedule ends after {} of the run's {} steps; the learning rate {}: it is "
                                        "{:.4g} at the last step. scheduler.params.total_num_steps \"auto\" ends the "
                                        "schedule with the run",
                                        end, total_run_steps, then, last)};
}

}  // namespace dslaunch::runtime::optim
