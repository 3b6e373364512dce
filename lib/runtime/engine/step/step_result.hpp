// What one training step came to, as the host learns it. Plain data.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace dslaunch::runtime::engine::step {

struct StepResult {
  int64_t step = 0;             // 1-based
  double loss = 0;              // mean of the micro batches' means over all data ranks, or over labels (LossAverage)
  double lr = 0;                // the learning rate of this step
  double rate_scale = 1;        // its factor beside what the scheduler says
  double grad_norm = 0;         // global, before clipping, without the loss scale
  double loss_scale = 1;        // the loss scale of this step
  bool overflow = false;        // the step was skipped
  std::string overflow_line;    // how an overflow changed the loss scale, for the console
  double next_lr = 0;           // of the next step, as far as this step has determined it
  double next_loss_scale = 1;   // likewise
  int64_t num_skipped = 0;      // over all steps since the start of training
  bool stop_requested = false;  // by any rank: all ranks see it at the same step
  int64_t num_tokens = 0;       // of this rank's micro batches
  double step_ms = 0;  // from the end of the previous step (or start, or restart_clock()) to the end of this step
  // Why training cannot continue.
  std::optional<std::string> diagnosis;
};

}  // namespace dslaunch::runtime::engine::step
