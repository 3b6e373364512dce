// The loss scale as a plain state machine: does what DeepSpeed's scaler does, step by step, with the numbers on the
// host. Its counterpart on the device (device_loss_scaler.hpp) makes the same decisions there without waiting; this one
// follows when the step's outcome arrives, and provides the values for messages, metrics and checkpoints. Pure; one
// thread.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "config/job_config.hpp"

namespace dslaunch::runtime::precision {

struct LossScaleState {
  double scale = 1;
  int64_t iteration = 0;         // steps seen, skipped ones included
  int64_t last_overflow = -1;    // iteration of the last overflow
  int64_t budget = 1;            // overflows until the scale halves
  int64_t applied_steps = 0;     // the count that bias correction and the schedule use
  int64_t overflows_in_row = 0;  // consecutive overflows up to now
  bool operator==(const LossScaleState&) const = default;
};

// The outcome of one step.
struct ScaleChange {
  enum class Kind {
    kApplied,      // no overflow
    kHeld,         // overflow; the scale is static
    kBudgetSpent,  // overflow; one of the budget is used up
    kReduced,      // overflow; the scale is halved, or set to its minimum
    kAtMinimum,    // overflow with the scale already at its minimum: training cannot continue
  };
  Kind kind = Kind::kApplied;
  double scale = 1;       // used by this step
  double next_scale = 1;  // used by the next step
  int64_t budget = 1;     // before this step
  bool overflow() const { return kind != Kind::kApplied; }
};

class LossScaler {
 public:
  explicit LossScaler(const config::LossScale& policy);

  // Takes the outcome of a step: its gradients (or loss) overflowed, or the step was applied.
  ScaleChange update(bool overflow);

  const LossScaleState& state() const { return state_; }
  // Sets a state from elsewhere. Values fixed by the policy stay: a static scale, the minimum, the size of the budget.
  void restore(LossScaleState state);

 private:
  const config::LossScale policy_;
  LossScaleState state_;
};

// The message that DeepSpeed users know: "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to
// 32768".
std::string describe(const ScaleChange& change);
// Why the run ends at the minimum and what to do; `step` (from 1) is the step that overflowed.
std::string explain_minimum(const LossScaleState& state, int64_t step);

// The state under the names of a checkpoint's scalars. When reading, a missing scalar keeps its value from `fallback`.
std::map<std::string, double> to_scalars(const LossScaleState& state, bool with_scale);
LossScaleState from_scalars(const std::map<std::string, double>& scalars, LossScaleState fallback);

}  // namespace dslaunch::runtime::precision
