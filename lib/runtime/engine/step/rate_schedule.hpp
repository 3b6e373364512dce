// The learning rates of a run's steps by the number of applied steps. One thread.
#pragma once
#include <memory>
#include <utility>

#include "runtime/optim/learning_rate.hpp"
#include "runtime/optim/moment_starts.hpp"
#include "runtime/optim/optimizer_groups.hpp"

namespace dslaunch::runtime::engine::step {

class RateSchedule {
 public:
  // Both references must outlive this object. `total_steps`: of the whole run, for the schedules that need it.
  RateSchedule(const config::Scheduler& scheduler, const optim::OptimizerGroups& groups, int64_t total_steps)
      : scheduler_(scheduler), groups_(groups), total_steps_(total_steps) {}

  // Of the step after `applied_steps` steps, as the scheduler says.
  optim::StepRates after(int64_t applied_steps) const {
    auto rates = optim::step_rates(scheduler_, groups_, total_steps_, applied_steps + offset_);
    rates.step = applied_steps + 1;  // bias correction counts from the step at which the moments were zero
    return rates;
  }

  // The same with the factor of the step that is computed now.
  optim::StepRates scaled_after(int64_t applied_steps) const {
    auto rates = after(applied_steps);
    rates.lr *= scale_;
    for (auto& group : rates.groups) group.lr *= scale_;
    return rates;
  }
  double scale() const { return scale_; }
  void set_scale(double scale) { scale_ = scale; }

  // Steps counted by the schedule but not by bias correction: the moments started later.
  int64_t offset() const { return offset_; }
  void set_offset(int64_t steps) { offset_ = steps; }

  // When the moments of parameters began, of which each counts its own steps.
  const std::shared_ptr<const optim::MomentStarts>& moment_starts() const { return moment_starts_; }
  void set_moment_starts(std::shared_ptr<const optim::MomentStarts> starts) { moment_starts_ = std::move(starts); }

 private:
  const config::Scheduler& scheduler_;
  const optim::OptimizerGroups& groups_;
  const int64_t total_steps_;
  int64_t offset_ = 0;
  double scale_ = 1;
  std::shared_ptr<const optim::MomentStarts> moment_starts_;  // null: all at 0 applied steps
};

}  // namespace dslaunch::runtime::engine::step
