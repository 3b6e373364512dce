#include "runtime/engine/plan/measure_activations.hpp"

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>

#include "runtime/engine/setup/initial_values.hpp"
#include "runtime/engine/setup/load_model.hpp"
#include "runtime/engine/setup/training_data.hpp"
#include "runtime/engine/step/engine.hpp"
#include "runtime/telemetry/counting_allocator.hpp"
#include "runtime/telemetry/memory_breakdown.hpp"

namespace dslaunch::runtime::engine::plan {
namespace {

// Reads the allocator of the device at the phases of a step.
class Watch final : public StepObserver {
 public:
  explicit Watch(at::Device device)
      : device_(device), of_host_(device.is_cpu() ? &CountingAllocator::install() : nullptr) {}

  void begin_step(int64_t) override {
    before_ = read().now;
    reset_peak();
  }
  void end_phase(StepPhase phase) override {
    const Allocated allocated = read();
    if (phase == StepPhase::kForward) {
      result.saved_bytes = allocated.now - before_;
      result.forward_peak = std::max(result.forward_peak, allocated.peak - before_);
    }
    if (phase == StepPhase::kBackward) {
      result.backward_peak = std::max(result.backward_peak, allocated.peak - before_);
      result.gradient_bytes = allocated.now - before_;
    }
    reset_peak();
  }
  void end_step() override {}

  MeasuredActivations result;

 private:
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
  int64_t before_ = 0;
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

int64_t activation_bytes(const MeasuredActivations& measured) {
  return std::max(measured.forward_peak, measured.backward_peak - measured.gradient_bytes);
}

MeasuredActivations measure_activations(const std::string& model_path, config::JobConfig config, at::Device device,
                                        comm::Communicator& alone) {
  config = plainest(std::move(config));
  const auto model = setup::load_model(model_path, config, device);
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
  BatchLoader loader(data.train, data.train_arrays, config.data, data.loader, {});
  const auto next = [&] { return setup::on_device(loader.next(), device); };
  // TorchScript runs a graph for the first time as it stands, then as it has optimized it. The peaks are those of both,
  // as in a run; what is saved is that of the second.
  for (int step = 0; step < 2; ++step) engine.train_step(next, /*stop_requested=*/false);
  engine.finish();
  return watch.result;
}

}  // namespace dslaunch::runtime::engine::plan
