// The decisions that a run takes after its evaluations (evaluation_choice.hpp), the same on all ranks. Rank 0 has the
// run's metrics: it decides, and counts again from them when the run resumes. One thread.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "comm/communicator.hpp"
#include "config/job_config.hpp"
#include "runtime/engine/run/evaluation_choice.hpp"
#include "runtime/engine/step/evaluation.hpp"

namespace dslaunch::runtime::engine::run {

struct EvaluationDecision {
  std::string why_stop;  // one line; empty: training goes on
  bool is_best = false;  // the state that was evaluated is among the best
  std::string best;      // the content of the file `best`; empty: none
};

class EvaluationDecisions {
 public:
  EvaluationDecisions(const config::JobConfig& config, comm::Communicator& world, at::Device device);

  // From the evaluations up to `resumed_step` of the run in `run_dir`. Of the best checkpoints only those count that
  // are there. Collective.
  EvaluationDecision resume(const std::string& run_dir, int64_t resumed_step,
                            const std::function<bool(int64_t)>& has_checkpoint);
  // After an evaluation. Collective.
  EvaluationDecision decide(int64_t step, const step::EvaluationResult& result);
  // Rank 0: the best checkpoint.
  std::optional<EvaluatedValue> best() const { return best_ ? best_->best() : std::nullopt; }

 private:
  bool is_needed() const { return early_stopping_ || best_; }
  EvaluationDecision agree(bool is_best);

  const config::JobConfig& config_;
  comm::Communicator& world_;
  const at::Device device_;
  std::optional<EarlyStopping> early_stopping_;
  std::optional<BestCheckpoints> best_;
};

}  // namespace dslaunch::runtime::engine::run
