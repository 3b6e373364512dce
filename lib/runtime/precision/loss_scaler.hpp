// The loss scale as a plain automaton: what DeepSpeed's scaler does, step by step, with the numbers on the host. Its
// twin on the device (device_loss_scaler.hpp) takes the same decisions there without waiting; this one follows when the
// step's verdict arrives, and is what messages, metrics and checkpoints are made from. Pure; one thread.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "config/job_config.hpp"

namespace dslaunch::runtime::precision {

struct LossScaleState {
  double scale = 1;
  int64_t iteration = 0;         // steps seen, skipped ones included
  int64_t last_overflow = -1;    // its iteration
  int64_t budget = 1;            // overflows until the scale halves
  int64_t applied_steps = 0;     // what bias correction and the schedule count
  int64_t overflows_in_row = 0;  // up to now
  bool operator==(const LossScaleState&) const = default;
};

// What became of one step.
struct ScaleChange {
  enum class Kind {
    kApplied,      // no overflow
    kHeld,         // overflow; the scale is static
    kBudgetSpent,  // overflow; the budget took it
    kReduced,      // overflow; the scale is halved, or set to its minimum
    kAtMinimum,    // overflow with the scale at its minimum already: training cannot go on
  };
  Kind kind = Kind::kApplied;
  double scale = 1;       // that this step used
  double next_scale = 1;  // that the next one uses
  int64_t budget = 1;     // before this step
  bool overflow() const { return kind != Kind::kApplied; }
};

class LossScaler {
 public:
  explicit LossScaler(const config::LossScale& policy);

  // Takes the verdict over a step: its gradients (and loss) overflowed, or the step was applied.
  ScaleChange update(bool overflow);

  const LossScaleState& state() const { return state_; }
  // A state from elsewhere. What the policy sets stays: a static scale, the minimum, the size of the budget.
  void restore(LossScaleState state);

 private:
  const config::LossScale policy_;
  LossScaleState state_;
};

// The line DeepSpeed users know: "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768".
std::string describe(const ScaleChange& change);
// Why the run ends at the minimum and what to do; `step` (from 1) is the step that overflowed.
std::string explain_minimum(const LossScaleState& state, int64_t step);

// The state under the names that a checkpoint's scalars have. Reading: what is missing keeps its value in `fallback`.
std::map<std::string, double> to_scalars(const LossScaleState& state, bool with_scale);
LossScaleState from_scalars(const std::map<std::string, double>& scalars, LossScaleState fallback);

}  // namespace dslaunch::runtime::precision
