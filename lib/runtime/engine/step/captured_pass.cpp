#include "runtime/engine/step/captured_pass.hpp"

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "runtime/sharding/all_gather_object.hpp"

namespace dslaunch::runtime::engine::step {
namespace {

std::function<setup::MicroBatch()> iterate(const std::vector<setup::MicroBatch>& batches) {
  return [&batches, next = size_t{0}]() mutable { return batches.at(next++); };
}

// Before the first step that is measured or captured: libraries choose algorithms and allocate memory, TorchScript
// optimizes its graphs, and ranks learn the order of their collectives.
constexpr int64_t kWarmUpSteps = 3;
constexpr size_t kMeasuredSteps = 3;

int64_t hash_of(const ShapeKey& key) {
  const std::string_view bytes(reinterpret_cast<const char*>(key.data()), key.size() * sizeof(int64_t));
  return static_cast<int64_t>(std::hash<std::string_view>()(bytes));
}

}  // namespace

bool is_measurable(const config::JobConfig& config, at::Device device, bool is_observed) {
  return !device.is_cpu() && !is_observed && config.pipeline.stages == 1;
}

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
  if (config.data_efficiency.random_ltd) return Failure{"random_ltd draws positions on the host"};
  if (config::is_one_bit(config.optimizer.type)) {
    return Failure{"the optimizer averages gradients in some of its steps only"};
  }
  if (config.zero.loco) return Failure{"zeropp_loco_param counts steps on the host"};
  return {};
}

CapturedPass::CapturedPass(GradientPass& pass, FlatParameters& parameters, StepStreams& streams,
                           comm::Communicator& world, Options options)
    : pass_(pass),
      parameters_(parameters),
      streams_(streams),
      world_(world),
      options_(std::move(options)),
      state_(options_.clock != nullptr ? State::kMeasuring : State::kCapturing),
      buckets_(/*captures_first=*/!options_.shapes_vary) {}

bool CapturedPass::check_ranks() {
  const Result<> all = agree(options_.capturable);
  if (!all.ok()) report(all);
  return all.ok();
}

void CapturedPass::compute(const std::function<setup::MicroBatch()>& next, int64_t step) {
  num_steps_ += 1;
  if (state_ == State::kOff || num_steps_ <= kWarmUpSteps) return pass_.compute(next);
  std::vector<setup::MicroBatch> batches;
  while (std::ssize(batches) < pass_.num_micro_batches()) batches.push_back(next());
  state_ == State::kMeasuring ? measure(batches) : run(batches, step);
}

void CapturedPass::measure(const std::vector<setup::MicroBatch>& batches) {
  streams_.join();
  world_.wait_for_completion();
  options_.clock->start();
  pass_.compute(iterate(batches));
  options_.clock->stop();
  world_.wait_for_completion();
  timings_.push_back(options_.clock->timing());
  if (timings_.size() == kMeasuredSteps) decide();
}

// Ranks wait for each other in their collectives, so the rank whose host is the slowest counts for all.
void CapturedPass::decide() {
  decision_ = decide_capture(gather_values(world_, options_.device, least_disturbed(timings_)));
  const Result<> all = decision_.pays ? agree(options_.capturable) : Failure{""};
  state_ = all.ok() ? State::kCapturing : State::kOff;
  if (!all.ok()) report(all);
}

void CapturedPass::run(const std::vector<setup::MicroBatch>& batches, int64_t step) {
  const auto [action, slot] = buckets_.plan(agree_on_shapes(batches));
  if (action == ShapeBuckets::Action::kLaunch) return pass_.compute(iterate(batches));
  streams_.join();
  if (action == ShapeBuckets::Action::kCapture && !capture(batches, slot, step)) {
    return pass_.compute(iterate(batches));
  }
  take_results(graphs_[slot]->replay(batches));
}

// NCCL wants all ranks to replay graphs that were captured together. A rank whose shapes changed alone would launch a
// step that others replay.
ShapeKey CapturedPass::agree_on_shapes(const std::vector<setup::MicroBatch>& batches) {
  ShapeKey own = shapes_of(batches);
  if (world_.size() == 1) return own;
  if (!options_.shapes_vary) {
    if (!only_shapes_) only_shapes_ = own;
    DSL_CHECK(own == *only_shapes_, "the batches of all steps have the same shapes");
    return own;
  }
  return gather_values(world_, options_.device, hash_of(own));
}

// If any rank cannot capture the step, no further step is captured; graphs that exist stay in use.
bool CapturedPass::capture(const std::vector<setup::MicroBatch>& batches, size_t slot, int64_t step) {
  const Result<> own = capture_own(batches, slot);
  const Result<> all = agree(own);
  if (all.ok()) {
    graphs_[slot]->share_results();
    report(all);
    log::debug("step {}: captured as a graph", step);
    return true;
  }
  graphs_[slot].reset();
  report(all);
  buckets_.stop_capturing();
  if (any_graph() == nullptr) state_ = State::kOff;
  return false;
}

Result<> CapturedPass::capture_own(const std::vector<setup::MicroBatch>& batches, size_t slot) {
  world_.wait_for_completion();
  if (slot == graphs_.size()) graphs_.emplace_back();
  graphs_[slot].reset();
  graphs_[slot] = std::make_unique<StepGraph>(options_.make_graph(options_.device, any_graph()));
  parameters_.begin_capture();
  const Result<> captured = graphs_[slot]->capture(batches, [this](const std::vector<setup::MicroBatch>& fixed) {
    pass_.compute(iterate(fixed));
    streams_.join();
    std::vector<at::Tensor> results{pass_.sums().loss};
    for (const auto& [span, arrays] : parameters_.state()) results.push_back(arrays.gradient);
    return results;
  });
  if (!captured.ok()) {
    streams_.discard();
    parameters_.abandon_pass();
  }
  parameters_.release_gradients();
  pass_.sums().loss = at::Tensor();
  return captured;
}

const DeviceGraph* CapturedPass::any_graph() const {
  const auto found = std::find_if(graphs_.begin(), graphs_.end(), [](const auto& graph) { return graph != nullptr; });
  return found != graphs_.end() ? &(*found)->device_graph() : nullptr;
}

// The first failure in the order of ranks.
Result<> CapturedPass::agree(const Result<>& own) {
  for (const auto& result : gather_results(world_, options_.device, own)) {
    if (!result.ok()) return result;
  }
  return {};
}

// With "auto" the first outcome is said together with what was measured; later and otherwise only failures.
void CapturedPass::report(const Result<>& captured) {
  const bool says_times = options_.clock != nullptr && !is_reported_;
  is_reported_ = true;
  if (says_times && !decision_.pays) {
    captured_ = Failure{describe(decision_, world_.size(), captured)};
  } else if (captured.ok() || any_graph() == nullptr) {
    captured_ = captured;
  }
  if (world_.rank() != 0) return;
  if (!says_times) {
    if (captured.ok()) return;
    if (any_graph() == nullptr) {
      log::warning("graph_harvesting has no effect: {}", captured.error());
    } else {
      log::warning("graph_harvesting: steps of further shapes are not captured: {}", captured.error());
    }
    return;
  }
  const std::string line = describe(decision_, world_.size(), captured);
  decision_.pays ? log::info("{}", line) : log::debug("{}", line);
}

// In the order in which capture_own() returns them.
void CapturedPass::take_results(const std::vector<at::Tensor>& results) {
  pass_.sums().loss = results.front();
  const auto state = parameters_.state();
  for (size_t i = 0; i < state.size(); ++i) state[i].arrays.gradient = results[i + 1];
}

}  // namespace dslaunch::runtime::engine::step
