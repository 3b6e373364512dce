#include "runtime/engine/diagnosis/step_snapshots.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/quantity.hpp"
#include "runtime/device/random_state.hpp"

namespace dslaunch::runtime::engine::diagnosis {

StepSnapshots::StepSnapshots(const FailedRun& run, const DataPosition& position) : run_(run), position_(position) {
  run_.engine.observe(*this);
}

// On a device, a step's loss arrives after the next step has started, so the last two starts are kept.
void StepSnapshots::begin_step(int64_t step) {
  if (starts_.size() == 2) starts_.pop_front();
  starts_.push_back({step, position_, device::save_random_state(run_.device)});
}

void StepSnapshots::explain(const step::StepResult& result) const {
  const bool loss_is_finite = std::isfinite(result.loss);
  const auto start =
      std::find_if(starts_.begin(), starts_.end(), [&](const StepStart& known) { return known.step == result.step; });
  DSL_CHECK(start != starts_.end(), "a step's start state is stored until its result is read");
  const auto [cause, advice] = diagnose(run_, *start, loss_is_finite);
  throw UserError(ExitCode::kCannotContinue,
                  fmt::format("{} is not finite at step {} (loss {}, gradient norm {}). Run again with checks: {}. {}",
                              loss_is_finite ? "the gradient" : "the loss", result.step, format_loss(result.loss),
                              format_loss(result.grad_norm), cause, advice));
}

}  // namespace dslaunch::runtime::engine::diagnosis
