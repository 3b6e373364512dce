#include "runtime/engine/run/step_monitors.hpp"

#include <filesystem>
#include <sstream>

#include "base/format.hpp"
#include "base/log.hpp"
#include "base/unshare_file.hpp"
#include "runtime/pipeline/measured_step.hpp"
#include "runtime/sharding/all_gather_object.hpp"
#include "runtime/telemetry/append_file.hpp"
#include "runtime/telemetry/flops_report.hpp"

namespace dslaunch::runtime::engine::run {
namespace {

void write_file(const std::string& path, const std::string& text) {
  const auto directory = std::filesystem::path(path).parent_path();
  if (!directory.empty()) make_directory(directory.string());
  AppendFile file(path);
  file.truncate(0);
  file.write(text);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

StepMonitors::StepMonitors(const config::JobConfig& config, StepMonitorOptions options)
    : config_(config), options_(std::move(options)) {
  const bool shows = options_.rank == 0;
  // DeepSpeed's flops profiler also enables the times. Rank 0 shows its own; those of all ranks show who is slower.
  if (config.wall_clock_breakdown || (shows && config.flops_profiler.enabled)) times_.emplace(options_.device);
  if (shows && config.memory_breakdown) memory_.emplace(options_.device);
  if (shows && config.flops_profiler.enabled) flops_.emplace(config.flops_profiler.profile_step + 1, options_.device);
  if (config.comms_logger.enabled) collectives_.emplace(config.comms_logger);
  if (options_.trace_step) trace_.emplace(*options_.trace_step, options_.rank, options_.device);
  // The trace comes first: it waits for the device before its step, and other monitors must not time that wait.
  if (trace_) phases_.add(*trace_);
  if (times_) phases_.add(*times_);
  if (flops_) phases_.add(*flops_);
  if (collectives_) phases_.add(*collectives_);
  if (memory_) phases_.add(*memory_);
}

comm::Communicator& StepMonitors::observe(comm::Communicator& inner, const std::string& group) {
  std::vector<CollectiveObserver*> observers;
  if (collectives_) observers.push_back(&*collectives_);
  if (trace_) observers.push_back(&*trace_);
  if (observers.empty()) return inner;
  observed_.push_back(std::make_unique<ObservedCommunicator>(inner, group, options_.device, std::move(observers)));
  return *observed_.back();
}

// A communicator that serves as two groups is observed once, under the first name.
comm::Groups StepMonitors::observe(const comm::Groups& inner) {
  const auto named = [this](comm::Communicator* group, const char* name) {
    return group == nullptr ? nullptr : &observe(*group, name);
  };
  world_ = &inner.world;
  comm::Communicator& world = observe(inner.world, "world");
  comm::Communicator& data = &inner.data == &inner.world ? world : observe(inner.data, "data");
  // The clock's own collectives are not part of what it measures.
  if (options_.trace_step && inner.pipe != nullptr) {
    pipeline_clock_.emplace(*options_.trace_step, *inner.pipe, options_.device);
    phases_.add(*pipeline_clock_);
  }
  return {inner.mesh,
          inner.own,
          world,
          data,
          named(inner.pipe, "pipe"),
          named(inner.tensor, "tensor"),
          named(inner.tied, "tied")};
}

void StepMonitors::watch_model(const model::ModelFacts& model) {
  model_ = &model;
  if (!flops_ && !trace_) return;
  const auto modules = model.modules;
  if (flops_) flops_->set_modules(modules);
  if (trace_) trace_->set_modules(modules);
}

StepReport StepMonitors::take_step(int64_t step) {
  StepReport report;
  if (times_) report.times = times_->take();
  if (memory_) {
    report.lines_at_report = memory_->take();
    report.peak_device_bytes = memory_->peak_allocated();
    report.peak_reserved_bytes = memory_->peak_reserved();
  }
  if (flops_) report_flops(step, report);
  if (collectives_) {
    for (auto& line : collectives_->collect(/*wait=*/false)) report.lines.push_back(std::move(line));
  }
  if (trace_) write_trace(report);
  if (pipeline_clock_) {
    if (const auto timeline = pipeline_clock_->take()) {
      for (auto& line : pipeline::describe_measured_step(*timeline, config_.pipeline.schedule))
        report.lines.push_back(std::move(line));
    }
  }
  report.step_flops = step_flops_;
  return report;
}

void StepMonitors::report_flops(int64_t step, StepReport& report) {
  const auto costs = flops_->take();
  if (!costs) return;
  has_profile_ = true;
  const auto& options = config_.flops_profiler;
  const auto tree = profile_tree(model_->modules, *costs, model_->table);
  log::debug("flops profile of step {}: {} flops, {} macs, {} params", step, tree[0].flops, tree[0].macs,
             tree[0].params);
  FlopsReportContext context{step, options_.mesh, config_.batch.micro_batch, {}};
  if (report.times) context.times = report.times->last_accumulation_step;
  step_flops_ = static_cast<double>(tree[0].flops) * (3 + options.recompute_fwd_factor) *
                static_cast<double>(config_.batch.accumulation);
  const std::string text = format_flops_report(tree, options, context);
  if (options.output_file.empty()) {
    for (auto& line : lines_of(text)) report.lines.push_back(std::move(line));
  } else {
    write_file(options.output_file, text);
    report.lines.push_back(fmt::format("flops profile of step {} in {}", step, options.output_file));
  }
}

void StepMonitors::write_trace(StepReport& report) {
  const auto trace = trace_->take();
  if (!trace) return;
  has_trace_ = true;
  const std::string path =
      fmt::format("{}/trace.step_{}.rank_{}.json", options_.run_dir, *options_.trace_step, options_.rank);
  unshare_file(path);
  write_file(path, trace->json);
  if (options_.rank == 0) log::info("trace of step {} in {}", *options_.trace_step, path);
  if (world_ == nullptr || world_->size() == 1) return;
  const auto ranks = gather_values(*world_, options_.device, trace->communication);
  report.lines.push_back(describe_communication(*options_.trace_step, ranks));
}

std::vector<std::string> StepMonitors::finish() {
  if (flops_ && !has_profile_) {
    log::warning("no flops profile: flops_profiler.profile_step {} means step {}, which this run did not execute",
                 config_.flops_profiler.profile_step, config_.flops_profiler.profile_step + 1);
  }
  if (trace_ && !has_trace_ && options_.rank == 0)
    log::warning("no trace: this run did not execute step {}", *options_.trace_step);
  std::vector<std::string> lines;
  if (!collectives_) return lines;
  lines = collectives_->collect(/*wait=*/true);
  for (auto& line : lines_of(collectives_->table())) lines.push_back(std::move(line));
  return lines;
}

}  // namespace dslaunch::runtime::engine::run
