// A rank of a training job: options, environment, device, store, communicator, run.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/directory_lock.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/status_page.hpp"
#include "base/writable_directory.hpp"
#include "comm/mesh.hpp"
#include "commands.hpp"
#include "config/load.hpp"
#include "config/node_paths.hpp"
#include "config/report.hpp"
#include "config/run_flags.hpp"
#include "device.hpp"
#include "driver_start.hpp"
#include "groups.hpp"
#include "rendezvous/launch_env.hpp"
#include "rendezvous/store.hpp"
#include "runtime/device/device.hpp"
#include "runtime/engine/run/trainer.hpp"
#include "runtime/engine/setup/load_model.hpp"
#include "runtime/generated_kernels/kernel_library.hpp"
#include "runtime/model/torchscript/file/script_error.hpp"
#include "runtime/telemetry/append_file.hpp"
#include "runtime/telemetry/run_timings.hpp"
#include "stop_signals.hpp"
#include "train_options.hpp"

namespace dslaunch::worker {
namespace {

constexpr std::chrono::minutes kJoinDeadline{5};
constexpr double kDefaultHangSeconds = 1800;      // DeepSpeed's default
constexpr double kMaxHangSeconds = 86400 * 10e3;  // the maximum duration that dslaunch accepts

config::LoadResult load_config(const TrainOptions& options, int world_size) {
  auto result = config::load_file(
      options.config.value_or(""), config::overrides_of(options.flags, options.sets),
      {.world_size = world_size, .model = runtime::engine::setup::read_model_defaults(options.model)});
  config::throw_if_bad(result);
  config::expand_node_paths(result.config);
  const bool has_data =
      !result.config.data.train.empty() || result.config.data.synthetic_train || options.flags.has("--eval_only");
  if (!has_data) {
    throw UserError(ExitCode::kBadInput,
                    "no training data: pass --data PATH, or set \"data\": {\"train\": PATH} in the config");
  }
  return result;
}

void require_writable(const char* what, const std::string& path, const char* named_by, const Result<>& writable) {
  if (writable.ok()) return;
  throw UserError(ExitCode::kCannotCreate,
                  fmt::format("cannot write {} to '{}' ({}): {}", what, path, named_by, writable.error()));
}

// Checks locations first written to during or after training, perhaps after hours. An evaluation writes to none.
void check_outputs_writable(const TrainOptions& options, const config::JobConfig& config, int rank) {
  const std::string& checkpoints = config.checkpoint.dir;
  if (!checkpoints.empty()) {
    require_writable("checkpoints", checkpoints, "checkpoint.dir", check_writable(checkpoints));
  }
  const auto& profile = config.flops_profiler;
  if (rank == 0 && profile.enabled && !profile.output_file.empty()) {
    require_writable("the flops profile", profile.output_file, "flops_profiler.output_file",
                     check_writable_file(profile.output_file));
  }
  if (options.flags.has("--trace")) {  // one file per rank, on other machines in an unchecked directory
    require_writable("the trace", options.run_dir, "--run_dir", check_writable(options.run_dir));
  }
}

// dslaunch locks the run directories of its jobs itself, and may hold this one for an `exec` that this rank belongs to;
// otherwise rank 0 takes the lock. Other ranks need none.
DirectoryLock lock_run_directory(const std::string& directory, const rendezvous::LaunchEnv& env) {
  if (env.rank != 0 || env.is_of_a_run()) return {};
  runtime::make_directory(directory);
  return DirectoryLock::lock_run_directory(directory, fmt::format("dsworker (process {} on {})", ::getpid(), env.host),
                                           env.job_id);
}

// How long ranks may wait for each other: the option, else DeepSpeed's variable (in minutes), else DeepSpeed's value.
std::chrono::milliseconds hang_limit_of(const TrainOptions& options) {
  const auto limited = [](double seconds) {
    return std::chrono::milliseconds(std::llround(1000 * std::min(seconds, kMaxHangSeconds)));
  };
  if (options.hang_timeout) return limited(*options.hang_timeout);
  const char* text = std::getenv("DEEPSPEED_TIMEOUT");
  if (text == nullptr) return limited(kDefaultHangSeconds);
  char* end = nullptr;
  const double minutes = std::strtod(text, &end);
  if (end != text && *end == '\0' && minutes > 0) return limited(60 * minutes);
  throw UserError(ExitCode::kContradiction,
                  fmt::format("DEEPSPEED_TIMEOUT='{}' in the environment is not a number of minutes above 0", text));
}

runtime::engine::run::TrainRequest request_of(const TrainOptions& options, const config::LoadResult& config,
                                              const rendezvous::LaunchEnv& env, const runtime::device::Device& device,
                                              const WatchedGroups& groups) {
  runtime::engine::run::TrainRequest request;
  request.model_path = options.model;
  request.run_dir = options.run_dir;
  request.config = config.config;
  request.resolved_config = config::resolved_json(config);
  request.auto_keys = config::auto_keys(config);
  request.device = &device;
  request.resume = options.flags.text("--resume");
  request.begin_from = options.begin_from;
  request.eval_only = options.flags.has("--eval_only");
  request.verify = options.flags.number("--verify").value_or(0);
  request.quiet = options.quiet;
  request.live = options.live;
  request.stop_requested = stop_requested;
  request.job = env.job_id;
  request.placement = {env.rank,      env.world_size, env.local_rank,      env.node_rank,
                       env.num_nodes, env.host,       env.local_world_size};
  request.gather_group = groups.gather.get();
  request.secondary_group = groups.secondary.get();
  request.trace_step = options.flags.number("--trace");
  request.watchdog = groups.watch.get();
  return request;
}

// Variables that libraries read at their first use; the user's own settings take precedence.
void set_library_variables(const config::JobConfig& config) {
  const auto set = [](const char* name, const char* value) { ::setenv(name, value, /*overwrite=*/0); };
  if (config.deterministic) set("CUBLAS_WORKSPACE_CONFIG", ":4096:8");  // else cuBLAS's matrix products are rejected
  // With two communicators (stage 3 all-gathers on one and reduces on the other, tensor ranks have one of their own),
  // kernels that start in different orders on different ranks could wait for each other forever; nothing else orders
  // the branches of a graph.
  if (config.zero.stage == 3 || config.tensor_parallel.size > 1) set("NCCL_LAUNCH_ORDER_IMPLICIT", "1");
}

// `launched`: when dslaunch started, in seconds since 1970.
std::optional<runtime::RunTimings> start_timings(std::optional<double> launched) {
  if (!launched) return std::nullopt;
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  return runtime::RunTimings(now - std::chrono::duration<double>(*launched), runtime::time_since_process_start());
}

// With what other threads did.
std::string table_of(runtime::RunTimings& timings, const runtime::device::Device& device) {
  if (const auto seconds = driver_seconds()) timings.add_beside("the GPU's driver and context", *seconds);
  const auto kernels = device.kernels()->counts();
  if (kernels.compiled > 0)
    timings.add_beside(fmt::format("{} generated kernels compiled", kernels.compiled), kernels.compiling_seconds);
  if (kernels.read > 0)
    timings.add_beside(fmt::format("{} generated kernels from the cache", kernels.read), kernels.reading_seconds);
  const auto gemms = device.gemms()->counts();
  if (gemms.measured > 0)
    timings.add_beside(fmt::format("algorithms of {} products measured", gemms.measured), gemms.measuring_seconds);
  return timings.table();
}

void set_log_level(const TrainOptions& options) {
  if (options.quiet) log::set_level(log::Level::kWarning);
  if (options.verbose) log::set_level(log::Level::kDebug);
}

// Reports the failure to the ranks that wait for this rank in collectives, before its groups are destroyed. A
// checkpoint that was being written is complete by then, for all ranks.
void notify_peers(const std::exception& error, rendezvous::Store& store, WatchedGroups& groups) {
  if (groups.watch) groups.watch->end();
  const bool is_ours = dynamic_cast<const Error*>(&error) != nullptr;
  const auto reason = is_ours ? error.what() : runtime::model::file::cause_of(error);
  store.report_failure(reason);
  groups.abort(reason);
}

int exit_code_of(runtime::engine::run::TrainOutcome outcome) {
  if (outcome == runtime::engine::run::TrainOutcome::kFinished) return to_int(ExitCode::kSuccess);
  return to_int(stop_signal() == SIGINT ? ExitCode::kInterrupted : ExitCode::kRunAgain);
}

}  // namespace

int train_command(const std::vector<std::string>& arguments) {
  const auto given = read_train_options(arguments);
  if (!given) return 0;
  const TrainOptions& options = *given;
  auto timings = start_timings(options.timings);
  auto ended = [&](const char* what) {
    if (timings) timings->end(what);
  };
  set_log_level(options);
  const auto env = rendezvous::launch_env_from_environment();
  // Where dslaunch shows the ranks' lines, it says whose they are, and merges equal ones.
  if (env.world_size > 1 && !env.is_of_a_run()) log::set_prefix(fmt::format("rank {}", env.rank));
  const auto config = load_config(options, env.world_size);
  const comm::Mesh mesh = comm::make_mesh(env.world_size, static_cast<int>(config.config.pipeline.stages),
                                          static_cast<int>(config.config.tensor_parallel.size));
  const auto hang_limit = hang_limit_of(options);
  if (!options.flags.has("--eval_only")) check_outputs_writable(options, config.config, env.rank);
  ended("reading the config");
  log::debug("config read");
  const at::Device device = open_device(options.device, env, ended);
  wait_for_driver();  // before the environment changes
  ended("opening the device");
  set_library_variables(config.config);
  const auto status = StatusWriter::from_environment();  // outlives the groups, whose hang watch writes to it
  log::debug("device {} open", device.str());
  // Never destroyed: the process ends without waiting for kernels that are still being compiled.
  const auto& shared = *new runtime::device::Device(device);
  auto store = rendezvous::connect_store(env, Deadline::after(kJoinDeadline));
  WatchedGroups groups;
  try {
    groups.open(env, mesh, device, config.config.zero, hang_limit, *store, status.get());
    // Only after all ranks have joined: rank 0 may serve the store, and would leave the other ranks waiting for it.
    const DirectoryLock lock = lock_run_directory(options.run_dir, env);
    ended("waiting for the other ranks");
    log::debug("{} ranks are connected", env.world_size);
    install_stop_signals(env.is_of_a_run());  // before this there is nothing to save, so a signal ends the rank at once
    auto request = request_of(options, config, env, shared, groups);
    request.hang_limit = hang_limit;
    request.status = status.get();
    request.timings = timings ? &*timings : nullptr;
    const auto outcome = runtime::engine::run::train(request, groups.mesh.groups(), *store);
    groups.mesh.world->barrier();
    groups.watch.reset();
    store->leave();
    ended("the end");
    if (timings && env.rank == 0) std::puts(table_of(*timings, shared).c_str());
    return exit_code_of(outcome);
  } catch (const std::exception& error) {
    // If the watchdog aborted this rank's wait, the error to report is the watchdog's verdict.
    const auto verdict = groups.watch ? groups.watch->verdict() : std::nullopt;
    if (verdict) {
      notify_peers(*verdict, *store, groups);
      throw *verdict;
    }
    notify_peers(error, *store, groups);
    throw;
  }
}

}  // namespace dslaunch::worker
