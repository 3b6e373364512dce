// The part of the engine that runs steps as CUDA graphs (step_graph.hpp).
#include "base/log.hpp"
#include "runtime/engine/step/engine.hpp"
#include "runtime/sharding/all_gather_object.hpp"

namespace dslaunch::runtime {
namespace {

// Whether the options of the run allow capture.
Result<> check_capturable(const config::JobConfig& config, const EngineOptions& options) {
  if (options.device.is_cpu()) return Failure{"it needs a GPU"};
  if (options.phases.is_observed()) return Failure{"steps are timed, traced or profiled phase by phase"};
  if (config.recomputation.enabled) return Failure{"activation_checkpointing keeps random states on the host"};
  if (config.zero.loco) return Failure{"zeropp_loco_param counts steps on the host"};
  return {};
}

std::function<MicroBatch()> iterate(const std::vector<MicroBatch>& batches) {
  return [&batches, next = size_t{0}]() mutable { return batches.at(next++); };
}

}  // namespace

void Engine::set_up_step_graph() {
  Result<> capturable = check_capturable(config_, options_);
  if (capturable.ok()) capturable = model_.facts.capturable;
  if (capturable.ok()) capturable = loss_->check_capturable();
  if (all_ranks_can_capture(capturable)) step_graph_ = std::make_unique<StepGraph>(options_.device);
}

// Ranks capture and replay the same steps: NCCL needs all ranks of a collective to capture it, or none.
bool Engine::all_ranks_can_capture(const Result<>& own) {
  for (const auto& result : gather_results(data_group_, options_.device, own)) {
    if (result.ok()) continue;
    if (data_group_.rank() == 0) log::warning("graph_harvesting has no effect: {}", result.error());
    return false;
  }
  return true;
}

// As compute_gradients(), but replays the graph of an earlier step once there is one.
void Engine::compute_as_graph(const std::function<MicroBatch()>& next) {
  if (!step_graph_->is_captured() && !step_graph_->begin_step()) return compute_gradients(next);
  std::vector<MicroBatch> batches;
  while (std::ssize(batches) < num_micro_batches()) batches.push_back(next());
  parameters_->wait_all_streams();
  if (!step_graph_->is_captured()) capture_step(batches);
  if (!step_graph_) return compute_gradients(iterate(batches));
  take_gradients(step_graph_->replay(batches));
}

// If any rank cannot capture the step, no further step is captured.
void Engine::capture_step(const std::vector<MicroBatch>& batches) {
  data_group_.wait_for_completion();
  const Result<> captured = step_graph_->capture(batches, [this](const std::vector<MicroBatch>& fixed) {
    compute_gradients(iterate(fixed));
    parameters_->wait_all_streams();
    std::vector<at::Tensor> results{loss_sum_};
    for (const auto& [span, arrays] : parameters_->state()) results.push_back(arrays.gradient);
    return results;
  });
  if (captured.ok()) {
    log::debug("step {}: captured as a graph", steps_done_ + 1);
  } else {
    parameters_->abandon_pass();
  }
  parameters_->release_gradients();
  if (!all_ranks_can_capture(captured)) step_graph_.reset();
}

// Takes a step's results in the order in which capture_step() returns them.
void Engine::take_gradients(const std::vector<at::Tensor>& results) {
  loss_sum_ = results.front();
  const auto states = parameters_->state();
  for (size_t i = 0; i < states.size(); ++i) states[i].arrays.gradient = results[i + 1];
}

}  // namespace dslaunch::runtime
