#include "runtime/engine/step/captured_pass.hpp"

#include "base/log.hpp"
#include "runtime/sharding/all_gather_object.hpp"

namespace dslaunch::runtime::engine::step {
namespace {

std::function<setup::MicroBatch()> iterate(const std::vector<setup::MicroBatch>& batches) {
  return [&batches, next = size_t{0}]() mutable { return batches.at(next++); };
}

}  // namespace

Result<> check_capturable(const config::JobConfig& config, at::Device device, bool is_observed) {
  if (device.is_cpu()) return Failure{"it needs a GPU"};
  if (is_observed) return Failure{"steps are timed, traced or profiled phase by phase"};
  if (config.pipeline.stages > 1) return Failure{"the stages of a pipeline send activations of any shape"};
  if (const auto& saved = config.recomputation; saved.enabled) {
    if (saved.cpu_checkpointing) return Failure{"activation_checkpointing.cpu_checkpointing moves memory to the host"};
    if (saved.contiguous_memory_optimization) {
      return Failure{"activation_checkpointing.contiguous_memory_optimization keeps one buffer for all steps"};
    }
    if (saved.synchronize_checkpoint_boundary || saved.profile) {
      return Failure{"activation_checkpointing waits for the device (synchronize_checkpoint_boundary, profile)"};
    }
  }
  if (config.zero.loco) return Failure{"zeropp_loco_param counts steps on the host"};
  return {};
}

CapturedPass::CapturedPass(GradientPass& pass, FlatParameters& parameters, StepStreams& streams,
                           comm::Communicator& world, at::Device device)
    : pass_(pass),
      parameters_(parameters),
      streams_(streams),
      world_(world),
      device_(device),
      graph_(std::in_place, device) {}

// Ranks capture and replay the same steps: NCCL needs all ranks of a collective to capture it, or none.
bool CapturedPass::enable(const Result<>& own) {
  for (const auto& result : gather_results(world_, device_, own)) {
    if (result.ok()) continue;
    if (world_.rank() == 0) log::warning("graph_harvesting has no effect: {}", result.error());
    graph_.reset();
    captured_ = result;
    return false;
  }
  return true;
}

void CapturedPass::compute(const std::function<setup::MicroBatch()>& next, int64_t step) {
  if (!graph_ || (!graph_->is_captured() && !graph_->begin_step())) return pass_.compute(next);
  std::vector<setup::MicroBatch> batches;
  while (std::ssize(batches) < pass_.num_micro_batches()) batches.push_back(next());
  streams_.join();
  if (!graph_->is_captured()) capture(batches, step);
  if (!graph_) return pass_.compute(iterate(batches));
  take_results(graph_->replay(batches));
}

// If any rank cannot capture the step, no further step is captured.
void CapturedPass::capture(const std::vector<setup::MicroBatch>& batches, int64_t step) {
  world_.wait_for_completion();
  parameters_.begin_capture();
  const Result<> captured = graph_->capture(batches, [this](const std::vector<setup::MicroBatch>& fixed) {
    pass_.compute(iterate(fixed));
    streams_.join();
    std::vector<at::Tensor> results{pass_.sums().loss};
    for (const auto& [span, arrays] : parameters_.state()) results.push_back(arrays.gradient);
    return results;
  });
  if (captured.ok()) {
    log::debug("step {}: captured as a graph", step);
  } else {
    streams_.discard();
    parameters_.abandon_pass();
  }
  parameters_.release_gradients();
  if (enable(captured)) captured_ = {};
}

// In the order in which capture() returns them.
void CapturedPass::take_results(const std::vector<at::Tensor>& results) {
  pass_.sums().loss = results.front();
  const auto state = parameters_.state();
  for (size_t i = 0; i < state.size(); ++i) state[i].arrays.gradient = results[i + 1];
}

}  // namespace dslaunch::runtime::engine::step
