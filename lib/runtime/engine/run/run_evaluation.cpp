#include "runtime/engine/run/run_evaluation.hpp"

#include <limits>
#include <optional>
#include <utility>

#include "base/log.hpp"
#include "runtime/sharding/all_gather_object.hpp"

namespace dslaunch::runtime::engine::run {

RunEvaluation::RunEvaluation(const setup::TrainingData& data, const config::Data& config, step::Engine& engine,
                             step::Metrics metrics, std::unique_ptr<RunSamples> samples, RunLog& log,
                             comm::Communicator& world, at::Device device, std::function<bool()> stop_requested)
    : data_(data),
      config_(config),
      engine_(engine),
      metrics_(std::move(metrics)),
      samples_(std::move(samples)),
      log_(log),
      world_(world),
      device_(device),
      stop_requested_(std::move(stop_requested)) {}

step::EvaluationResult RunEvaluation::evaluate(int64_t num_batches) {
  const bool own = data_.eval != nullptr;
  EvaluationLoader loader(own ? data_.eval : data_.train, own ? data_.eval_arrays : data_.train_arrays, config_,
                          own ? data_.eval_loader : data_.loader);
  auto next = [&]() -> std::optional<step::EvaluationBatch> {
    auto batch = num_batches-- > 0 ? loader.next() : std::nullopt;
    if (!batch) return std::nullopt;
    const int64_t samples = batch->num_samples;
    return step::EvaluationBatch{setup::on_device(std::move(*batch), device_), samples};
  };
  return engine_.evaluate(next, stop_requested_, &metrics_);
}

void RunEvaluation::try_metrics() {
  if (!data_.eval) return;
  if (metrics_.reads_results()) evaluate(/*num_batches=*/1);
  if (samples_) samples_->try_prompts();
}

std::optional<step::EvaluationResult> RunEvaluation::run() {
  auto result = evaluate(std::numeric_limits<int64_t>::max());
  evaluated_step_ = engine_.steps_done();
  if (result.stopped) {
    log::info("the evaluation was stopped on request");
    return std::nullopt;
  }
  WrittenSamples written;
  if (samples_) written = samples_->write();
  result.metrics.insert(result.metrics.end(), written.values.begin(), written.values.end());
  log_.report_evaluation(engine_.steps_done(), result, written.texts);
  return result;
}

bool RunEvaluation::is_missing_at_end() {
  return decision_of_rank_0(data_.eval && !log_.has_evaluation(engine_.steps_done()));
}

bool RunEvaluation::is_missing_midway() {
  if (!data_.eval || engine_.steps_done() == 0) return false;
  return decision_of_rank_0(log_.lacks_evaluation(engine_.steps_done()));
}

bool RunEvaluation::decision_of_rank_0(bool decision) {
  return gather_values(world_, device_, decision ? 1 : 0).front() == 1;
}

}  // namespace dslaunch::runtime::engine::run
