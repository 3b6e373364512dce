// The part of the engine that runs steps as graphs of the device (step_graph.hpp).
#include "base/format.hpp"
#include "base/log.hpp"
#include "runtime/engine/engine.hpp"
#include "runtime/model/script_error.hpp"

namespace dslaunch::runtime {
namespace {

// What speaks against recording, as far as it is known before a step is; empty: nothing.
std::string obstacle_of_run(const config::JobConfig& config, const EngineOptions& options) {
  if (options.device.is_cpu()) return "it takes a GPU";
  if (options.phases.is_observed()) return "this rank's steps are timed, traced or profiled phase by phase";
  if (config.recomputation.enabled) return "activation_checkpointing keeps random states on the host";
  if (config.zero.loco) return "zeropp_loco_param counts steps on the host";
  return {};
}

void tell_of_no_graph(const std::string& obstacle) {
  log::warning("graph_harvesting: steps are issued launch by launch, as without it: {}", obstacle);
}

std::function<MicroBatch()> in_turn(const std::vector<MicroBatch>& batches) {
  return [&batches, next = size_t{0}]() mutable { return batches.at(next++); };
}

}  // namespace

void Engine::set_up_step_graph() {
  std::string obstacle = obstacle_of_run(config_, options_);
  if (obstacle.empty()) obstacle = model_.recording_obstacle();
  if (obstacle.empty()) obstacle = loss_->recording_obstacle();
  if (obstacle.empty()) {
    step_graph_ = std::make_unique<StepGraph>(options_.device);
  } else if (data_group_.rank() == 0 && !options_.for_evaluation) {
    tell_of_no_graph(obstacle);
  }
}

// As compute_gradients(), by the graph of an earlier step once there is one. Ranks need not agree: replayed or not, a
// step issues the same collectives in the same order.
void Engine::compute_as_graph(const std::function<MicroBatch()>& next) {
  std::vector<MicroBatch> batches;
  while (std::ssize(batches) < num_micro_batches()) batches.push_back(next());
  if (step_graph_->is_due()) record_step(batches);
  if (step_graph_->is_recorded()) {
    parameters_->settle();
    take_gradients(step_graph_->replay(batches));
  } else {
    compute_gradients(in_turn(batches));
  }
}

void Engine::record_step(const std::vector<MicroBatch>& batches) {
  parameters_->settle();
  data_group_.wait_for_completion();
  try {
    step_graph_->record(batches, [this](const std::vector<MicroBatch>& fixed) {
      compute_gradients(in_turn(fixed));
      parameters_->settle();
      std::vector<at::Tensor> results{loss_sum_};
      for (const auto& run : shard_tensors_) results.push_back(run.gradient);
      return results;
    });
    log::debug("step {}: recorded as a graph", steps_done_ + 1);
  } catch (const std::exception& error) {
    parameters_->abandon_pass();
    if (data_group_.rank() == 0) tell_of_no_graph(cause_of(error));
  }
  forget_gradients();
}

// What record_step() made of a step's results.
void Engine::take_gradients(const std::vector<at::Tensor>& results) {
  loss_sum_ = results.front();
  for (size_t i = 0; i < shard_tensors_.size(); ++i) shard_tensors_[i].gradient = results[i + 1];
}

}  // namespace dslaunch::runtime
