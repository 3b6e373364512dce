#include "runtime/engine/bench/measure_step.hpp"

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "runtime/device/fp8.hpp"
#include "runtime/device/random_state.hpp"
#include "runtime/engine/bench/step_profile.hpp"
#include "runtime/engine/plan/estimate_activations.hpp"
#include "runtime/engine/plan/require_memory.hpp"
#include "runtime/engine/setup/device_batches.hpp"
#include "runtime/engine/setup/initial_values.hpp"
#include "runtime/engine/setup/load_model.hpp"
#include "runtime/engine/setup/training_data.hpp"
#include "runtime/engine/step/engine.hpp"
#include "runtime/model/torchscript/graph_passes.hpp"
#include "runtime/telemetry/counting_allocator.hpp"
#include "runtime/telemetry/host_memory.hpp"
#include "runtime/telemetry/memory_breakdown.hpp"

namespace dslaunch::runtime::engine::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kCountedStep = 2;  // before a step is captured, and after what is evaluated once

// Counts the arithmetic of one step.
class CountedStep final : public step::EngineObserver {
 public:
  void begin_step(int64_t step) override {
    if (step == kCountedStep) {
      flops_.emplace();
    } else if (flops_) {
      macs_ = flops_->read();
      flops_.reset();
    }
  }
  void before_update(std::span<const SpanState>, const step::ApplyUpdate&) override {
    if (flops_) flops_->begin_update();
  }
  bool allows_early_updates() const override { return !flops_; }  // its arithmetic is told apart by before_update()
  const StepMacs& macs() const { return macs_; }

 private:
  std::optional<StepFlops> flops_;
  StepMacs macs_;
};

// The peaks of the device's allocator, or of CPU tensors.
class PeakMemory {
 public:
  explicit PeakMemory(at::Device device)
      : device_(device), of_host_(device.is_cpu() ? &CountingAllocator::install() : nullptr) {}

  void reset() const {
    of_host_ != nullptr ? of_host_->reset_peak()
                        : at::getDeviceAllocator(device_.type())->resetPeakStats(device_.index());
  }
  StepMemory read() const {
    StepMemory out;
    if (of_host_ != nullptr) {
      out.allocated = of_host_->read().peak;
    } else {
      const DeviceMemory memory = read_device_memory(device_);
      out.allocated = memory.peak_allocated;
      out.reserved = memory.peak_reserved;
    }
    if (const auto process = read_host_memory()) out.process = process->peak;
    return out;
  }

 private:
  const at::Device device_;
  CountingAllocator* const of_host_;  // null on a device
};

// What a run sets for its whole process.
void set_up_torch(const config::JobConfig& config, at::Device device) {
  device::seed_random_state(config.train.seed, /*rank=*/0, device);
  at::globalContext().setDeterministicAlgorithms(config.deterministic, /*warn_only=*/false);
  precision::set_tf32(config.tf32, device);
  if (config.fp8) device::require_fp8(device);
}

// Times do not depend on the values of a model that was exported without.
config::JobConfig with_values(config::JobConfig config) {
  if (!config.init) config.init = config::Init();
  return config;
}

class StepBench {
 public:
  StepBench(const std::string& path, config::JobConfig config, const device::Device& shared, comm::Communicator& alone,
            const StepCounts& counts)
      : began_(Clock::now()),
        config_(with_values(std::move(config))),
        device_(shared.at()),
        counts_(counts),
        memory_(device_),
        precision_(precision::choose_precision(config_.precision, config_.keep_batch_norm, device_)),
        groups_(comm::Groups::of_data_ranks(alone)),
        model_(setup::load_model(path, config_, shared, programs_)) {
    programs_->keep_entries();
    const at::Device device = device_;
    DSL_CHECK(counts.warmup >= kCountedStep && counts.timed > 0, "there are steps to count and to time");
    setup::require_trainable(model_->facts, path);
    set_up_torch(config_, device);
    if (config_.recomputation.enabled) {
      out_.notes.push_back(model_->runnable->set_recomputation(setup::recomputation_options(config_, device)));
    }
    data_ = setup::open_training_data(model_->facts, config_, groups_.mesh, /*rank=*/0, precision_.compute_dtype,
                                      /*pin=*/!device.is_cpu());
    require_memory();
    step::EngineOptions options{.device = device, .dtypes = {precision_, buffer_names()}};
    options.total_steps = counts.warmup + 2 * counts.timed + 1 + counts.profiled;
    engine_ = std::make_unique<step::Engine>(*model_, config_, options, groups_,
                                             setup::initial_values(*model_, config_.init, path));
    engine_->observe(counted_);
    if (!model_->facts.fp8.empty()) out_.notes.push_back(model_->facts.fp8);
    for (const auto& note : model_->facts.notes) out_.notes.push_back("model: " + note);
    batches_.emplace(BatchLoader(data_.train, data_.train_arrays, config_.data, data_.loader, DataPosition()), device,
                     /*step=*/1);
  }

  StepMeasurement run() {
    run_steps(1);
    out_.first_step_seconds = std::chrono::duration<double>(Clock::now() - began_).count();
    run_steps(counts_.warmup - 1);
    memory_.reset();
    engine_->restart_clock();
    const auto timed = run_steps(counts_.timed);
    out_.memory = memory_.read();
    for (const auto& result : timed) out_.step_ms.push_back(result.step_ms);
    run_held();
    const auto skipped = std::count_if(timed.begin(), timed.end(), [](const auto& result) { return result.overflow; });
    if (skipped > 0) {
      out_.notes.push_back(fmt::format("{} of the timed steps did not update: the loss scale was too large", skipped));
    }
    out_.num_parameters = model_->facts.table.num_elements();
    out_.num_warmup = counts_.warmup;
    out_.tokens_per_step = timed.back().num_tokens;
    out_.samples_per_step = config_.batch.micro_batch * config_.batch.accumulation;
    out_.macs = counted_.macs();
    profile();
    describe_execution();
    return std::move(out_);
  }

 private:
  std::vector<std::string> buffer_names() const {
    std::vector<std::string> names;
    for (const auto& [name, value] : model_->tensors.buffers()) names.push_back(name);
    return names;
  }

  void require_memory() {
    const int64_t activations =
        plan::estimate_activations(model_->facts.table, config_,
                                   plan::count_positions(data_, config_.batch.micro_batch), precision_.compute_dtype);
    const auto warning = plan::require_memory(plan::planned_model(*model_), config_, {.device = device_},
                                              plan::read_capacity(device_, /*ranks_of_host=*/1), activations);
    if (!warning.empty()) out_.notes.push_back(warning);
  }

  // The same steps without their input: what is between is what steps wait for it.
  void run_held() {
    std::vector<setup::MicroBatch> held;
    for (int64_t i = 0; i < config_.batch.accumulation; ++i) held.push_back(batches_->next());
    const auto next = [&held, at = size_t{0}]() mutable { return held[at++ % held.size()]; };
    run_steps(1, next);  // what the loader had begun ends beside it
    engine_->restart_clock();
    for (const auto& result : run_steps(counts_.timed, next)) out_.held_ms.push_back(result.step_ms);
  }

  std::vector<step::StepResult> run_steps(int64_t count) {
    return run_steps(count, [this] { return batches_->next(); });
  }

  // All results; waits for the device.
  std::vector<step::StepResult> run_steps(int64_t count, const std::function<setup::MicroBatch()>& next) {
    std::vector<step::StepResult> results;
    for (int64_t i = 0; i < count; ++i) {
      if (auto result = engine_->train_step(next, /*stop_requested=*/false)) results.push_back(*std::move(result));
    }
    if (auto result = engine_->finish()) results.push_back(*std::move(result));
    for (const auto& result : results) {
      if (!result.overflow && !std::isfinite(result.loss) && !is_infinite_noted_) {
        out_.notes.push_back(fmt::format("the loss of step {} is not finite: a run would end there", result.step));
        is_infinite_noted_ = true;
      }
    }
    return results;
  }

  void profile() {
    if (counts_.profiled == 0) return;
    StepProfiler profiler(device_);
    engine_->restart_clock();
    const auto results = run_steps(counts_.profiled);
    out_.profile = profiler.take();
    out_.profile.num_steps = counts_.profiled;
    for (const auto& result : results) out_.profile.wall_ms += result.step_ms;
  }

  void describe_execution() {
    const auto& captured = engine_->captured();
    out_.is_captured = captured.ok();
    if (!captured.ok()) out_.why_not_captured = captured.error();
    out_.graphs = model_->runnable->report_graphs();
    for (const auto& entry : programs_->take_entries()) {
      out_.programs.num_groups += 1;
      out_.programs.num_regions += static_cast<int64_t>(entry.num_regions);
      if (entry.num_regions == 0) out_.programs.why_not.push_back(entry.why_none);
    }
  }

  const Clock::time_point began_;
  const config::JobConfig config_;
  const at::Device device_;
  const StepCounts counts_;
  const PeakMemory memory_;
  const precision::PrecisionChoice precision_;
  const comm::Groups groups_;
  const setup::ProgramLogPtr programs_ = std::make_shared<model::fusion::ProgramLog>();
  std::unique_ptr<model::Model> model_;
  setup::TrainingData data_;
  CountedStep counted_;
  std::unique_ptr<step::Engine> engine_;
  std::optional<setup::DeviceBatches> batches_;
  StepMeasurement out_;
  bool is_infinite_noted_ = false;
};

}  // namespace

StepMeasurement measure_step(const std::string& model_path, const config::JobConfig& config,
                             const device::Device& device, comm::Communicator& alone, const StepCounts& counts) {
  auto out = StepBench(model_path, config, device, alone, counts).run();
  const at::Device at = device.at();
  if (!at.is_cpu()) at::getDeviceAllocator(at.type())->emptyCache();  // for what is measured next
  return out;
}

config::JobConfig in_eager_torchscript(config::JobConfig config) {
  for (const auto& pass : model::torchscript::graph_passes()) {
    if (pass.key != nullptr) config.kernels.*pass.key = false;
  }
  config.graph_harvesting = false;
  return config;
}

at::ScalarType gemm_dtype(const config::JobConfig& config, at::Device device) {
  if (const auto autocast = precision::to_torch(config.autocast)) return *autocast;
  return precision::choose_precision(config.precision, config.keep_batch_norm, device).compute_dtype;
}

}  // namespace dslaunch::runtime::engine::bench
