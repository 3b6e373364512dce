// Steps of a training job measured on one rank, and what they do with their time.
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/printable.hpp"
#include "bench_options.hpp"
#include "comm/communicator.hpp"
#include "commands.hpp"
#include "config/load.hpp"
#include "config/node_paths.hpp"
#include "config/report.hpp"
#include "device.hpp"
#include "rendezvous/launch_env.hpp"
#include "rendezvous/store.hpp"
#include "runtime/engine/bench/measure_step.hpp"
#include "runtime/engine/bench/recorded_inputs.hpp"
#include "runtime/engine/bench/step_report.hpp"
#include "runtime/engine/plan/measure_rates.hpp"
#include "runtime/engine/setup/load_model.hpp"
#include "runtime/precision/precision_choice.hpp"
#include "runtime/state/model_metadata.hpp"

namespace dslaunch::worker {
namespace {

namespace bench = runtime::engine::bench;

// Of the inputs that the export has recorded.
void make_up_samples(const BenchOptions& options, config::JobConfig& config) {
  auto inputs = bench::recorded_inputs(runtime::read_model_metadata(options.model).text, options.model);
  if (inputs.empty()) {
    throw UserError(
        ExitCode::kBadInput,
        fmt::format(
            "bench step needs data, and '{}' does not record its inputs, as tools/export does: pass --data PATH, "
            "or set \"data\": {{\"train\": PATH}} in the config; for made-up data: --data synthetic, and the "
            "shapes in \"data\": {{\"synthetic\": {{NAME: {{\"shape\": [1024], \"dtype\": \"int64\", \"high\": "
            "VOCABULARY}}}}}}",
            options.model));
  }
  log::info("no data is given; made-up samples, as the model file records its inputs: {}",
            bench::describe_inputs(inputs));
  config.data.synthetic = std::move(inputs);
  config.data.synthetic_train = true;
}

config::JobConfig load_config(const BenchOptions& options) {
  auto result =
      config::load_file(options.config, config::overrides_of(options.flags, options.sets),
                        {.world_size = 1, .model = runtime::engine::setup::read_model_defaults(options.model)});
  config::throw_if_bad(result);
  config::expand_node_paths(result.config);
  if (result.config.data.train.empty() && !result.config.data.synthetic_train) make_up_samples(options, result.config);
  return result.config;
}

bench::StepCounts counts_of(const BenchOptions& options, at::Device device) {
  const bool is_cpu = device.is_cpu();
  return {.warmup = options.warmup.value_or(is_cpu ? 2 : 10),
          .timed = options.steps.value_or(is_cpu ? 5 : 20),
          .profiled = is_cpu ? 1 : 3};
}

bench::StepReport measure(const BenchOptions& options) {
  const config::JobConfig config = load_config(options);
  if (config.deterministic) ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  const rendezvous::LaunchEnv alone;
  const at::Device device = open_device(options.device, alone);
  const auto store = rendezvous::connect_store(alone, Deadline::after(std::chrono::minutes(1)));
  const auto world = comm::make_communicator({.device = device.is_cuda() ? device.index() : -1}, *store);
  const bench::StepCounts counts = counts_of(options, device);
  log::info("measuring {} steps of {} on {}, after {} of warm-up", counts.timed, options.model, device.str(),
            counts.warmup);
  bench::StepReport report;
  report.model = options.model;
  report.device = device;
  report.gemm_dtype = bench::gemm_dtype(config, device);
  report.compute_dtype =
      runtime::precision::choose_precision(config.precision, config.keep_batch_norm, device).compute_dtype;
  report.micro_batch = config.batch.micro_batch;
  report.accumulation = config.batch.accumulation;
  report.zero_stage = static_cast<int>(config.zero.stage);
  const runtime::device::Device shared(device);
  report.own = bench::measure_step(options.model, config, shared, *world, counts);
  if (options.against_torch) {
    log::info("measuring the same in eager TorchScript");
    report.torch = bench::measure_step(options.model, bench::in_eager_torchscript(config), shared, *world, counts);
  }
  report.gemm_rate = runtime::engine::plan::measure_gemm_rate(device, report.gemm_dtype);
  return report;
}

// A file has lines of any length; kernels have names of hundreds of characters.
size_t line_width() {
  constexpr size_t kOfFiles = 120;
  winsize size{};
  const bool is_known = ::isatty(STDOUT_FILENO) == 1 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  return is_known && size.ws_col > 0 ? size.ws_col : kOfFiles;
}

}  // namespace

int bench_command(const std::vector<std::string>& arguments) {
  const auto options = read_bench_options(arguments);
  if (!options) return 0;
  const auto report = measure(*options);
  if (options->json) {
    std::fputs(report_json(report).c_str(), stdout);
  } else {
    print_text(report_text(report, line_width()));
  }
  return 0;
}

}  // namespace dslaunch::worker
