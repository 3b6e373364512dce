// What a model and a config need in memory, on hosts that need not exist.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <set>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/printable.hpp"
#include "comm/communicator.hpp"
#include "command_line.hpp"
#include "commands.hpp"
#include "config/load.hpp"
#include "device.hpp"
#include "plan_options.hpp"
#include "rendezvous/launch_env.hpp"
#include "rendezvous/store.hpp"
#include "runtime/engine/plan/estimate_activations.hpp"
#include "runtime/engine/plan/largest_gpt.hpp"
#include "runtime/engine/plan/measure_activations.hpp"
#include "runtime/engine/plan/measure_rates.hpp"
#include "runtime/engine/plan/plan_report.hpp"
#include "runtime/engine/plan/suggest.hpp"
#include "runtime/engine/setup/load_model.hpp"
#include "runtime/engine/setup/training_data.hpp"
#include "runtime/precision/precision_choice.hpp"
#include "runtime/state/output_file.hpp"
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

// A machine without a GPU says nothing about the memory of hosts with GPUs.
bool is_like_the_hosts(const runtime::memory_plan::Capacity& hosts) {
  return !hosts.has_gpus || gpu_memory_of_this_machine();
}

runtime::memory_plan::Capacity capacity_of(const PlanOptions& options) {
  runtime::memory_plan::Capacity out;
  out.ranks_of_host = options.num_gpus;
  out.gpu_bytes = find_gpu_memory(options);
  out.has_gpus = options.device == "cuda" || (options.device == "auto" && out.gpu_bytes.has_value());
  if (!out.has_gpus) out.gpu_bytes.reset();
  out.host_bytes = options.host_memory;
  if (!out.host_bytes && is_like_the_hosts(out)) out.host_bytes = runtime::read_available_memory();
  return out;
}

// Without times of layers, stages are cut by parameters.
std::vector<plan::PlannedModel> read_models(const std::string& path, const config::JobConfig& config,
                                            at::Device device) {
  std::vector<plan::PlannedModel> out;
  const auto num_stages = static_cast<int>(config.pipeline.stages);
  const auto tensor_ranks = static_cast<int>(config.tensor_parallel.size);
  for (int stage = 0; stage < num_stages; ++stage) {
    out.push_back(plan::planned_model(
        *runtime::engine::setup::load_part(path, config, runtime::device::Device(device),
                                           {.num_stages = num_stages, .stage = stage, .tensor_ranks = tensor_ranks})));
  }
  return out;
}

// As the settings of a job load them.
plan::PlannedStages read_stages(const std::string& path, config::JobConfig config, at::Device device) {
  const auto read = [&](bool in_chunks) {
    config.kernels.chunked_cross_entropy = in_chunks;
    return read_models(path, config, device);
  };
  // On CPUs logits exist whole.
  if (device.is_cpu()) return {read(false)};
  return {read(true), read(false)};
}

bool splits_gemms(const plan::PlannedStages& stages) {
  return std::all_of(stages.with_chunked_heads.begin(), stages.with_chunked_heads.end(),
                     [](const auto& model) { return model.placements && model.placements->split_elements() > 0; });
}

plan::PlanReport report_of(const PlanOptions& options) {
  plan::PlanReport report;
  report.model = options.model;
  report.capacity = capacity_of(options);
  report.is_host_memory_of_this_machine = !options.host_memory && report.capacity.host_bytes;
  report.device = report.capacity.has_gpus ? at::kCUDA : at::kCPU;
  report.num_nodes = options.num_nodes;
  report.ranks_of_node = options.num_gpus;
  if (options.activations) report.activations = {runtime::memory_plan::points_of(*options.activations), "given"};
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
  if (config.pipeline.stages > 1 || config.tensor_parallel.size > 1) {
    command_line::usage_error(
        "--measure runs the whole model on one rank: leave pipeline.stages and tensor_parallel out, or give "
        "--activations SIZE");
  }
  if (config.precision == config::Precision::kAuto && planned.is_cuda()) config.precision = config::Precision::kBf16;
  const rendezvous::LaunchEnv alone;
  const at::Device device = open_device(planned.is_cpu() ? "cpu" : "auto", alone);
  const runtime::device::Device shared(device);
  const auto store = rendezvous::connect_store(alone, Deadline::after(std::chrono::minutes(1)));
  const auto world = comm::make_communicator({.device = device.is_cuda() ? device.index() : -1}, *store);
  const auto points = [&](bool in_chunks) {
    config.kernels.chunked_cross_entropy = in_chunks;
    return plan::measure_activations(options.model, config, shared, *world);
  };
  if (device.is_cpu()) return {points(false), "measured on the CPU of this machine"};
  return {points(true), "measured on its GPU", points(false)};
}

plan::PlanReport plan_model(const PlanOptions& options) {
  const plan::JobSource job = job_of(options);
  const auto loaded = plan::load_job(job);
  plan::PlanReport report = report_of(options);
  report.num_data_ranks = loaded.data_ranks;
  const auto stages = read_stages(options.model, loaded.config, report.device);
  for (const auto& model : stages.of(loaded.config)) {
    report.num_parameters += model.table.num_elements();
    report.num_trained += model.table.num_trainable();
    report.num_parameters_of_rank = std::max(report.num_parameters_of_rank, model.num_local());
    report.num_units += model.table.units.size();
    report.fp8 = model.fp8;
    report.placements = model.placements;
  }
  if (report.placements && loaded.config.tensor_parallel.probe != config::TensorProbe::kOff) {
    report.placements->probe =
        runtime::engine::setup::probe_split(options.model, loaded.config, runtime::device::Device(report.device));
  }
  report.settings = plan::plan_settings(stages, job, report.device);
  if (options.measure) report.activations = measure(options, loaded.config, report.device);
  return report;
}

std::string plan_largest(const PlanOptions& options) {
  const plan::JobSource job = job_of(options);
  plan::PlanReport report = report_of(options);
  if (report.capacity.has_gpus && !report.capacity.gpu_bytes) {
    command_line::usage_error("--largest needs --gpu_memory SIZE: this machine has no GPU");
  }
  if (!report.capacity.host_bytes) {
    command_line::usage_error("--largest needs --host_memory SIZE: this machine has no GPU, the hosts are others");
  }
  const auto loaded = plan::load_job(job);
  if (loaded.config.tensor_parallel.size > 1) {
    command_line::usage_error("--largest plans whole layers: leave tensor_parallel.size out");
  }
  report.num_data_ranks = loaded.data_ranks;
  const auto found = plan::find_largest_gpts(report, job);
  return options.json ? largest_json(report, found) : largest_text(report, found);
}

double given_or(const std::optional<int64_t>& given, double measured) {
  return given ? static_cast<double>(*given) : measured;
}

// Those given, else those of this machine, where it has the device that is planned.
plan::Rates rates_of(const PlanOptions& options, const config::JobConfig& config, const plan::PlanReport& report) {
  plan::Rates rates;
  const bool is_all_given =
      options.tflops && options.device_bandwidth && options.link_bandwidth && options.host_bandwidth;
  if (!is_all_given) {
    if (report.device.is_cuda() && !gpu_memory_of_this_machine()) {
      command_line::usage_error(
          "--suggest for GPUs needs rates, and this machine has no GPU to measure: give --tflops, --device_bandwidth, "
          "--link_bandwidth and --host_bandwidth");
    }
    const at::Device device = open_device(report.device.is_cpu() ? "cpu" : "cuda", {});
    const auto precision =
        runtime::precision::choose_precision(config.precision, config.keep_batch_norm, report.device);
    rates = plan::measure_rates(device, precision.compute_dtype);
  }
  if (options.tflops) rates.flops = *options.tflops * 1e12;
  rates.device_bytes = given_or(options.device_bandwidth, rates.device_bytes);
  rates.link_bytes = given_or(options.link_bandwidth, rates.link_bytes);
  rates.host_bytes = given_or(options.host_bandwidth, rates.host_bytes);
  const bool is_one_host = report.num_nodes == 1;
  rates.network_bytes = given_or(options.network_bandwidth,
                                 is_one_host ? plan::rate_within_host(rates, report.device, report.ranks_of_node) : 0);
  rates.file_bytes = given_or(options.file_bandwidth, 0);
  if (report.num_data_ranks > 1 && rates.network_bytes == 0) {
    command_line::usage_error(
        fmt::format("--suggest for {} hosts needs --network_bandwidth SIZE: what a rank sends in collectives each "
                    "second",
                    report.num_nodes));
  }
  return rates;
}

int64_t positions_of_sample(const std::string& model_path, const config::JobConfig& config, at::Device device) {
  if (config.data.train.empty() && !config.data.synthetic_train) {
    throw UserError(
        ExitCode::kBadInput,
        "--suggest needs to know the size of a sample: pass --data PATH, or set \"data\": {\"train\": PATH} "
        "in the config");
  }
  const auto model = runtime::engine::setup::load_model(model_path, config, runtime::device::Device(device));
  const auto data = runtime::engine::setup::open_training_data(model->facts, config, {}, /*rank=*/0, at::kFloat,
                                                               /*pin=*/false);
  return plan::count_positions(data, /*micro_batch=*/1);
}

// Of a new file: what stands in another one may be somebody's only copy.
void require_new_file(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  throw UserError(ExitCode::kCannotCreate,
                  fmt::format("--suggest '{}': the file exists; name one that does not", path));
}

void write_config(const std::string& path, const std::string& text) {
  runtime::OutputFile file(path);
  file.write(text);
  file.finish(/*sync=*/false);
}

// Those of the config, and without --tp also others that lie within a host.
std::set<int> tensor_ranks_to_try(const PlanOptions& options, const config::JobConfig& config) {
  constexpr int kMost = 8;
  std::set<int> out{static_cast<int>(config.tensor_parallel.size)};
  if (options.flags.has("--tp")) return out;
  const int world_size = options.num_gpus * options.num_nodes;
  for (int ranks = 1; ranks <= std::min(kMost, options.num_gpus); ranks *= 2) {
    if (options.num_gpus % ranks == 0 && world_size % (config.pipeline.stages * ranks) == 0) out.insert(ranks);
  }
  return out;
}

std::string suggest_setting(const PlanOptions& options) {
  require_new_file(options.suggest);
  plan::SuggestInputs inputs;
  inputs.job = job_of(options);
  const auto loaded = plan::load_job(inputs.job);
  inputs.report = report_of(options);
  inputs.report.num_data_ranks = loaded.data_ranks;
  inputs.rates = rates_of(options, loaded.config, inputs.report);
  inputs.positions_per_sample = positions_of_sample(options.model, loaded.config, inputs.report.device);
  for (const int tensor_ranks : tensor_ranks_to_try(options, loaded.config)) {
    config::JobConfig config = loaded.config;
    config.tensor_parallel.size = tensor_ranks;
    auto stages = read_stages(options.model, config, inputs.report.device);
    // Ranks that split nothing compute all of it several times.
    const bool is_own = tensor_ranks == loaded.config.tensor_parallel.size;
    if (is_own || splits_gemms(stages)) inputs.stages.emplace(tensor_ranks, std::move(stages));
  }
  if (options.measure) inputs.report.activations = measure(options, loaded.config, inputs.report.device);
  const auto suggestion = plan::suggest(inputs);
  write_config(options.suggest, plan::config_text(suggestion.chosen, inputs.job));
  return options.json ? suggestion_json(suggestion, inputs, options.suggest)
                      : suggestion_text(suggestion, inputs, options.suggest);
}

std::string plan_text(const PlanOptions& options) {
  if (options.largest) return plan_largest(options);
  if (!options.suggest.empty()) return suggest_setting(options);
  const auto report = plan_model(options);
  return options.json ? report_json(report) : report_text(report);
}

}  // namespace

int plan_command(const std::vector<std::string>& arguments) {
  const auto options = read_plan_options(arguments);
  if (!options) return 0;
  const std::string text = plan_text(*options);
  if (options->json) {
    std::fputs(text.c_str(), stdout);
  } else {
    print_text(text);
  }
  return 0;
}

}  // namespace dslaunch::worker
