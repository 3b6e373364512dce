// What a model and a config need in memory, on hosts that need not exist.
#include <chrono>
#include <cstdio>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "comm/communicator.hpp"
#include "command_line.hpp"
#include "commands.hpp"
#include "config/load.hpp"
#include "device.hpp"
#include "plan_options.hpp"
#include "rendezvous/launch_env.hpp"
#include "rendezvous/store.hpp"
#include "runtime/engine/plan/largest_gpt.hpp"
#include "runtime/engine/plan/measure_activations.hpp"
#include "runtime/engine/plan/plan_report.hpp"
#include "runtime/engine/setup/load_model.hpp"
#include "runtime/telemetry/host_memory.hpp"

namespace dslaunch::worker {
namespace {

namespace plan = runtime::engine::plan;

plan::JobSource job_of(const PlanOptions& options) {
  return {options.config, config::overrides_of(options.flags, options.sets), options.num_gpus * options.num_nodes};
}

// The GPU memory of this machine only where it was not given; empty where there is no GPU.
std::optional<int64_t> find_gpu_memory(const PlanOptions& options) {
  if (options.gpu_memory || options.device == "cpu") return options.gpu_memory;
  return gpu_memory_of_this_machine();
}

runtime::memory_plan::Capacity capacity_of(const PlanOptions& options) {
  runtime::memory_plan::Capacity out;
  out.ranks_of_host = options.num_gpus;
  out.gpu_bytes = find_gpu_memory(options);
  out.has_gpus = options.device == "cuda" || (options.device == "auto" && out.gpu_bytes.has_value());
  if (!out.has_gpus) out.gpu_bytes.reset();
  out.host_bytes = options.host_memory ? options.host_memory : runtime::read_available_memory();
  return out;
}

// A model, or each stage of its pipeline; without times of layers, stages are cut by parameters.
std::vector<plan::PlannedModel> read_models(const std::string& path, const config::JobConfig& config,
                                            at::Device device) {
  std::vector<plan::PlannedModel> out;
  const auto num_stages = static_cast<int>(config.pipeline.stages);
  for (int stage = 0; stage < num_stages; ++stage) {
    out.push_back(plan::planned_model(*runtime::engine::setup::load_stage(path, config, device, num_stages, stage)));
  }
  return out;
}

plan::PlanReport report_of(const PlanOptions& options) {
  plan::PlanReport report;
  report.model = options.model;
  report.capacity = capacity_of(options);
  report.device = report.capacity.has_gpus ? at::kCUDA : at::kCPU;
  report.num_nodes = options.num_nodes;
  report.ranks_of_node = options.num_gpus;
  if (options.activations) report.activations = {*options.activations, "given"};
  return report;
}

// Two steps on this machine's device, in the precision of the ranks that are planned.
plan::Activations measure(const PlanOptions& options, config::JobConfig config, at::Device planned) {
  const bool has_data = !config.data.train.empty() || config.data.synthetic_train;
  if (!has_data) {
    throw UserError(
        ExitCode::kBadInput,
        "--measure needs a micro batch: pass --data PATH, or set \"data\": {\"train\": PATH} in the config");
  }
  if (config.pipeline.stages > 1) {
    command_line::usage_error("--measure runs the whole model: leave pipeline.stages out, or give --activations SIZE");
  }
  if (config.precision == config::Precision::kAuto && planned.is_cuda()) config.precision = config::Precision::kBf16;
  const rendezvous::LaunchEnv alone;
  const at::Device device = open_device(planned.is_cpu() ? "cpu" : "auto", alone);
  const auto store = rendezvous::connect_store(alone, Deadline::after(std::chrono::minutes(1)));
  const auto world = comm::make_communicator({.device = device.is_cuda() ? device.index() : -1}, *store);
  const auto measured = plan::measure_activations(options.model, std::move(config), device, *world);
  return {measured.forward_peak,
          fmt::format("measured on {}", device.is_cpu() ? "the CPU of this machine" : "its GPU")};
}

plan::PlanReport plan_model(const PlanOptions& options) {
  const plan::JobSource job = job_of(options);
  const auto loaded = plan::load_job(job);
  plan::PlanReport report = report_of(options);
  report.num_data_ranks = loaded.data_ranks;
  const auto models = read_models(options.model, loaded.config, report.device);
  for (const auto& model : models) {
    report.num_parameters += model.table.num_elements();
    report.num_trained += model.table.num_trainable();
    report.num_units += model.table.units.size();
  }
  report.settings = plan::plan_settings(models, job, report.device);
  if (options.measure) report.activations = measure(options, loaded.config, report.device);
  return report;
}

std::string plan_largest(const PlanOptions& options) {
  const plan::JobSource job = job_of(options);
  plan::PlanReport report = report_of(options);
  if (report.capacity.has_gpus && !report.capacity.gpu_bytes) {
    command_line::usage_error("--largest needs --gpu_memory SIZE: this machine has no GPU");
  }
  const auto loaded = plan::load_job(job);
  if (loaded.config.pipeline.stages > 1) {
    command_line::usage_error("--largest plans data ranks only: leave pipeline.stages out, or plan a model file");
  }
  report.num_data_ranks = loaded.data_ranks;
  const auto found = plan::find_largest_gpts(report, job);
  return options.json ? largest_json(report, found) : largest_text(report, found);
}

std::string plan_text(const PlanOptions& options) {
  if (options.largest) return plan_largest(options);
  const auto report = plan_model(options);
  return options.json ? report_json(report) : report_text(report);
}

}  // namespace

int plan_command(const std::vector<std::string>& arguments) {
  const auto options = read_plan_options(arguments);
  if (!options) return 0;
  std::fputs(plan_text(*options).c_str(), stdout);
  return 0;
}

}  // namespace dslaunch::worker
