// The evaluations of a run, over the evaluation data; a run that only evaluates and has no evaluation data uses the
// training data. All ranks call the same functions at the same steps. One thread.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "comm/communicator.hpp"
#include "config/job_config.hpp"
#include "runtime/engine/run/run_log.hpp"
#include "runtime/engine/run/run_samples.hpp"
#include "runtime/engine/setup/training_data.hpp"
#include "runtime/engine/step/engine.hpp"
#include "runtime/engine/step/metrics.hpp"

namespace dslaunch::runtime::engine::run {

class RunEvaluation {
 public:
  // All references must outlive this object.
  RunEvaluation(const setup::TrainingData& data, const config::Data& config, step::Engine& engine,
                step::Metrics metrics, std::unique_ptr<RunSamples> samples, RunLog& log, comm::Communicator& world,
                at::Device device, std::function<bool()> stop_requested);

  // Evaluates one batch and begins each sample, so that a metric or a prompt that does not suit the model ends the run
  // before its first step. Reports nothing. Collective.
  void try_metrics();
  // Evaluates the parameters as they are after the engine's last step, and reports the result. Empty when a rank
  // requested a stop, which ends the evaluation without a report. Collective.
  std::optional<step::EvaluationResult> run();

  // Whether the run's last step has not been evaluated yet.
  bool is_due_at_end() const { return data_.eval && evaluated_step_ != engine_.steps_done(); }
  // Whether an earlier start of the run ended before it reported the evaluation of the step at which this start begins:
  // the run's last step, or an intermediate one. Collective: rank 0, which has the run's metrics, decides.
  bool is_missing_at_end();
  bool is_missing_midway();

 private:
  step::EvaluationResult evaluate(int64_t num_batches);
  bool decision_of_rank_0(bool decision);

  const setup::TrainingData& data_;
  const config::Data& config_;
  step::Engine& engine_;
  step::Metrics metrics_;
  const std::unique_ptr<RunSamples> samples_;  // null: none
  RunLog& log_;
  comm::Communicator& world_;
  const at::Device device_;
  const std::function<bool()> stop_requested_;
  int64_t evaluated_step_ = -1;  // the last step that was followed by an evaluation
};

}  // namespace dslaunch::runtime::engine::run
