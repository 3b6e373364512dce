#include "runtime/engine/plan/measure_activations.hpp"

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <optional>

#include "runtime/engine/setup/initial_values.hpp"
#include "runtime/engine/setup/load_model.hpp"
#include "runtime/engine/setup/training_data.hpp"
#include "runtime/engine/step/engine.hpp"
#include "runtime/state/unit_parameters.hpp"
#include "runtime/telemetry/counting_allocator.hpp"
#include "runtime/telemetry/memory_breakdown.hpp"

namespace dslaunch::runtime::engine::plan {
namespace {

using memory_plan::StepPoint;

// Reads the allocator of the device at the phases of a step and whenever backward allocates gradients of parameters,
// which are not activations. Between the model and its parameters; on the engine's thread and, in backward, autograd's.
class Watch final : public StepObserver, public UnitParameters {
 public:
  explicit Watch(at::Device device)
      : device_(device), of_host_(device.is_cpu() ? &CountingAllocator::install() : nullptr) {}

  void wrap(UnitParameters& parameters) { parameters_ = &parameters; }

  void begin_step(int64_t) override {
    if (!before_) before_ = read().now;
    gradients_ = 0;
    reset_peak();
  }
  void end_phase(StepPhase phase) override {
    if (phase == StepPhase::kForward || phase == StepPhase::kBackward) note();
  }
  void end_step() override {}

  UnitValues acquire(int unit, UnitCall call) override { return parameters_->acquire(unit, call); }
  void release(int unit) override { parameters_->release(unit); }
  void prepare_backward(int unit) override { parameters_->prepare_backward(unit); }
  std::optional<GradientDestination> gradient_destination(int unit, size_t parameter, at::ScalarType factors) override {
    std::optional<GradientDestination> out;
    watch_gradients([&] { out = parameters_->gradient_destination(unit, parameter, factors); });
    return out;
  }
  // This holds the gradients until it is known how much their buffers take.
  void take_gradients(int unit, std::vector<at::Tensor> gradients) override {
    watch_gradients([&] { parameters_->take_gradients(unit, gradients); });
  }

  std::vector<StepPoint> points() const {
    std::vector<StepPoint> out;
    for (const auto& [activations, gradients] : noted_) {
      const bool has_any = most_gradients_ > 0;
      out.push_back({activations, has_any ? static_cast<double>(gradients) / static_cast<double>(most_gradients_) : 0});
    }
    return out;
  }

 private:
  struct Noted {  // bytes
    int64_t activations = 0, gradients = 0;
  };

  template <class Call>
  void watch_gradients(const Call& call) {
    note();
    const int64_t before = read().now;
    call();
    gradients_ += read().now - before;
    most_gradients_ = std::max(most_gradients_, gradients_);
    note();
  }
  // The most since the last time.
  void note() {
    const int64_t activations = read().peak - *before_ - gradients_;
    const bool is_same = !noted_.empty() && noted_.back().gradients == gradients_;
    if (!is_same) noted_.push_back({0, gradients_});
    noted_.back().activations = std::max(noted_.back().activations, activations);
    reset_peak();
  }
  Allocated read() const {
    if (of_host_ != nullptr) return of_host_->read();
    const DeviceMemory memory = read_device_memory(device_);
    return {memory.allocated, memory.peak_allocated};
  }
  void reset_peak() const {
    of_host_ != nullptr ? of_host_->reset_peak()
                        : at::getDeviceAllocator(device_.type())->resetPeakStats(device_.index());
  }

  const at::Device device_;
  CountingAllocator* const of_host_;  // null on a device
  UnitParameters* parameters_ = nullptr;
  std::optional<int64_t> before_;  // the first step
  int64_t gradients_ = 0, most_gradients_ = 0;
  std::vector<Noted> noted_;
};

// The same forward and backward with the least state around it.
config::JobConfig plainest(config::JobConfig config) {
  config.zero = {};
  config.optimizer = {.type = config::OptimizerType::kSgd, .lr = 0.0};
  config.scheduler = {};
  config.graph_harvesting = false;
  config.batch = {config.batch.micro_batch, config.batch.micro_batch, 1};
  config.data.num_workers = 0;  // batches of other threads would be counted, too
  if (!config.init) config.init = config::Init();
  return config;
}

}  // namespace

std::vector<StepPoint> measure_activations(const std::string& model_path, config::JobConfig config,
                                           const device::Device& shared, comm::Communicator& alone) {
  config = plainest(std::move(config));
  const at::Device device = shared.at();
  const auto model = setup::load_model(model_path, config, shared);
  setup::require_trainable(model->facts, model_path);
  const auto precision = precision::choose_precision(config.precision, config.keep_batch_norm, device);
  std::vector<std::string> buffers;
  for (const auto& [name, value] : model->tensors.buffers()) buffers.push_back(name);
  if (config.recomputation.enabled) {
    model->runnable->set_recomputation(setup::recomputation_options(config, device));
  }
  const auto groups = comm::Groups::of_data_ranks(alone);
  const auto data = setup::open_training_data(model->facts, config, groups.mesh, /*rank=*/0, precision.compute_dtype,
                                              /*pin=*/false);

  Watch watch(device);
  step::EngineOptions options{.device = device, .dtypes = {precision, buffers}, .total_steps = 2};
  options.phases.add(watch);
  step::Engine engine(*model, config, options, groups, setup::initial_values(*model, config.init, model_path));
  watch.wrap(engine.unit_parameters());
  model->runnable->set_unit_parameters(&watch);
  BatchLoader loader(data.train, data.train_arrays, config.data, data.loader, {});
  const auto next = [&] { return setup::on_device(loader.next(), device); };
  // TorchScript runs a graph for the first time as it stands, then as it has optimized it: the points are those of
  // both, as in a run.
  for (int step = 0; step < 2; ++step) engine.train_step(next, /*stop_requested=*/false);
  engine.finish();
  return watch.points();
}

}  // namespace dslaunch::runtime::engine::plan
