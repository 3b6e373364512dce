#include "runtime/engine/run/evaluation_decisions.hpp"

#include <algorithm>
#include <limits>

#include "base/format.hpp"
#include "runtime/sharding/all_gather_object.hpp"
#include "runtime/telemetry/metrics_file.hpp"

namespace dslaunch::runtime::engine::run {
namespace {

// "eval_loss" or "eval_NAME"; NaN where the command of train.samples has not printed it.
double value_of(const step::EvaluationResult& result, const std::string& name) {
  if (name == "eval_loss") return result.loss;
  for (const auto& [metric, value] : result.metrics) {
    if (name == "eval_" + metric) return value;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

EvaluationDecisions::EvaluationDecisions(const config::JobConfig& config, comm::Communicator& world, at::Device device)
    : config_(config), world_(world), device_(device) {
  if (config.train.early_stopping) early_stopping_.emplace(*config.train.early_stopping);
  if (config.checkpoint.keep_best) best_.emplace(*config.checkpoint.keep_best);
}

EvaluationDecision EvaluationDecisions::resume(const std::string& run_dir, int64_t resumed_step,
                                               const std::function<bool(int64_t)>& has_checkpoint) {
  if (!is_needed() || resumed_step == 0) return {};
  const auto values_of = [&](const std::string& name) {
    return MetricsFile::evaluated_values(run_dir + "/metrics.jsonl", name, resumed_step);
  };
  if (world_.rank() == 0 && early_stopping_) {
    for (const auto& [step, value] : values_of(config_.train.early_stopping->metric))
      early_stopping_->add({step, value});
  }
  if (world_.rank() == 0 && best_) {
    for (const auto& [step, value] : values_of(config_.checkpoint.keep_best->metric)) {
      if (has_checkpoint(step)) best_->add({step, value});
    }
  }
  return agree(/*is_best=*/false);
}

EvaluationDecision EvaluationDecisions::decide(int64_t step, const step::EvaluationResult& result) {
  if (!is_needed()) return {};
  bool is_best = false;
  if (world_.rank() == 0 && early_stopping_) {
    early_stopping_->add({step, value_of(result, config_.train.early_stopping->metric)});
  }
  if (world_.rank() == 0 && best_) {
    is_best = best_->add({step, value_of(result, config_.checkpoint.keep_best->metric)});
  }
  return agree(is_best);
}

// What rank 0 has decided.
EvaluationDecision EvaluationDecisions::agree(bool is_best) {
  EvaluationDecision own;
  if (world_.rank() == 0) {
    own = {early_stopping_ ? early_stopping_->reason().value_or("") : "", is_best, best_ ? best_->text() : ""};
  }
  const bool agreed = gather_values<uint8_t>(world_, device_, own.is_best ? 1 : 0).front() == 1;
  return {gather_texts(world_, device_, own.why_stop).front(), agreed, gather_texts(world_, device_, own.best).front()};
}

}  // namespace dslaunch::runtime::engine::run
