// tensorboard, csv_monitor, wandb, flops_profiler, comms_logger, timers.
#include "config/key_rows.hpp"

namespace dslaunch::config {
namespace {

constexpr KeySpec kRows[] = {
    section("tensorboard"),
    key<&JobConfig::tensorboard, &MonitorFiles::enabled>("tensorboard.enabled",
                                                         "event files for TensorBoard, written by rank 0"),
    key<&JobConfig::tensorboard, &MonitorFiles::output_path>("tensorboard.output_path",
                                                             "their directory; empty: the working directory"),
    key<&JobConfig::tensorboard, &MonitorFiles::job_name>("tensorboard.job_name", "their subfolder"),
    section("csv_monitor"),
    key<&JobConfig::csv_monitor, &MonitorFiles::enabled>("csv_monitor.enabled",
                                                         "one CSV file per metric, written by rank 0"),
    key<&JobConfig::csv_monitor, &MonitorFiles::output_path>("csv_monitor.output_path",
                                                             "their directory; empty: the working directory"),
    key<&JobConfig::csv_monitor, &MonitorFiles::job_name>("csv_monitor.job_name", "their subfolder"),
    section("wandb"),
    key<&JobConfig::wandb, &Wandb::enabled>(
        "wandb.enabled", "curves to Weights & Biases, through the Python client of rank 0's environment"),
    key<&JobConfig::wandb, &Wandb::project>("wandb.project", "its project; null: WANDB_PROJECT, else deepspeed")
        .unset(),
    key<&JobConfig::wandb, &Wandb::group>("wandb.group", "group of the run; null: WANDB_RUN_GROUP").unset(),
    key<&JobConfig::wandb, &Wandb::team>("wandb.team", "the entity that the project belongs to; null: WANDB_ENTITY")
        .unset(),

    section("flops_profiler"),
    key<&JobConfig::flops_profiler, &FlopsProfiler::enabled>(
        "flops_profiler.enabled", "FLOPs, parameters and latency of one step's forward, by module"),
    key<&JobConfig::flops_profiler, &FlopsProfiler::recompute_fwd_factor>(
        "flops_profiler.recompute_fwd_factor", "share of a forward that backward computes again")
        .min(0),
    key<&JobConfig::flops_profiler, &FlopsProfiler::profile_step>("flops_profiler.profile_step",
                                                                  "steps done before the one that is profiled")
        .min(0),
    key<&JobConfig::flops_profiler, &FlopsProfiler::module_depth>("flops_profiler.module_depth",
                                                                  "depth of the table of top modules; -1: all")
        .min(-1),
    key<&JobConfig::flops_profiler, &FlopsProfiler::top_modules>("flops_profiler.top_modules",
                                                                 "modules shown at each depth")
        .min(0),
    key<&JobConfig::flops_profiler, &FlopsProfiler::detailed>("flops_profiler.detailed",
                                                              "print the whole tree of modules"),
    key<&JobConfig::flops_profiler, &FlopsProfiler::output_file>("flops_profiler.output_file",
                                                                 "where the report goes; null: standard output")
        .unset(),

    section("comms_logger"),
    key<&JobConfig::comms_logger, &CommsLogger::enabled>("comms_logger.enabled",
                                                         "log every collective; a table of them at the end"),
    key<&JobConfig::comms_logger, &CommsLogger::prof_all>("comms_logger.prof_all", "log all kinds"),
    key<&JobConfig::comms_logger, &CommsLogger::prof_ops>(
        "comms_logger.prof_ops",
        "only these, if prof_all is off: all_reduce, reduce_scatter_tensor, all_gather_into_tensor, "
        "all_to_all_single, broadcast, barrier"),
    key<&JobConfig::comms_logger, &CommsLogger::verbose>("comms_logger.verbose", "a line for each collective, too"),
    key<&JobConfig::comms_logger, &CommsLogger::debug>("comms_logger.debug",
                                                       "tell apart the phases of a step that issued them"),

    section("timers"),
    section("timers.throughput"),
    key<&JobConfig::throughput_timer>("timers.throughput.enabled",
                                      "the line with samples per second, if steps_per_print is given"),
};

}  // namespace

std::span<const KeySpec> monitoring_keys() {
  return kRows;
}

}  // namespace dslaunch::config
