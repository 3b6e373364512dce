// What all ranks conclude from a step's gradients before the update: one small all-reduce carries the loss, the squared
// norm and the stop requests; from it follow the factor that turns summed gradients into clipped means, and whether the
// update is skipped. Nothing here waits for the device: the host reads a step's statistics one step late. One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "runtime/engine/step/gradient_pass.hpp"
#include "runtime/engine/step/rate_schedule.hpp"
#include "runtime/engine/step/step_clock.hpp"
#include "runtime/engine/step/step_result.hpp"
#include "runtime/precision/loss_scaling.hpp"
#include "runtime/state/state_arrays.hpp"

namespace dslaunch::runtime::engine::step {

// Of one step, the same on all ranks; scalars on the device.
struct Verdict {
  at::Tensor gradient_factor;  // fp32: averages, clips and removes the loss scale
  at::Tensor skip;             // fp32: not 0, the update writes nothing
  at::Tensor applied_steps;    // int64, without this step; undefined: the host knows the number
};

class StepVerdict {
 public:
  struct Options {
    at::Device device = at::kCPU;
    double max_norm = 0;             // 0: no clipping
    double gradient_divisor = 1;     // turns summed gradients into means
    double total_micro_batches = 1;  // of all data ranks in a step
    bool sums_over_labels = false;   // see GradientPass::Options
    bool contributes_loss = true;    // false: another rank counts this rank's loss and labels,
    bool contributes_norm = true;    // or its gradients
    // The parts of a span of the state that count for the norm, if not all of it: another stage counts the others.
    std::function<std::vector<Range>(const StateSpan&)> counted_ranges = {};
  };
  // The references must outlive this object. Statistics are summed over the world; each rank adds what it owns.
  StepVerdict(Options options, precision::LossScaling& loss_scaling, const RateSchedule& rates,
              comm::Communicator& world);

  // The gradient factor of every step, on the host, if it depends on nothing that a step computes.
  std::optional<at::Tensor> known_factor() const;
  // `state` has its gradients. `averaged`: false: they are this rank's own, and the norm is the root mean square of the
  // ranks' norms. Collective.
  Verdict decide(const PassSums& sums, std::span<const SpanState> state, bool stop_requested, bool averaged = true);
  // The step just decided is issued, loss scaling has advanced: `result` gets the rest of its values when they arrive.
  // On the host that is now; on a device the result of the previous step is returned, if it was not read before.
  std::optional<StepResult> publish(StepResult result);
  // The result that is still in flight, if any; waits for the device.
  std::optional<StepResult> finish();
  // Time since the last step is excluded from the next step's time.
  void restart_clock() { clock_.restart(); }

 private:
  struct InFlight {
    StepResult result;
    int64_t applied_steps = 0;  // including this step; not used with a loss scale
    at::Tensor statistics;      // as statistics_, on the host once `arrived`
    StepClock::Mark arrived;
  };

  at::Tensor weigh_by_labels();
  const at::Tensor& skip_after_nonfinite();
  StepResult read(InFlight in_flight);
  void follow_loss_scale(StepResult& result, const float* report);

  // fixed after construction
  const Options options_;
  precision::LossScaling& loss_scaling_;
  const RateSchedule& rates_;
  comm::Communicator& world_;
  // changes with every step
  StepClock clock_;
  // fp32 on the device: [loss, grad norm, stop, label weight], with a loss scale also its report
  at::Tensor statistics_;
  at::Tensor nonfinite_;  // fp32 scalar on the device: 1 once a loss or norm was not finite
  std::optional<InFlight> in_flight_;
};

}  // namespace dslaunch::runtime::engine::step
