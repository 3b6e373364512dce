// tensorboard, csv_monitor, flops_profiler, comms_logger, timers.
#include "config/key_rows.hpp"

namespace dslaunch::config {
namespace {

constexpr KeySpec kRows[] = {
    section("tensorboard"),
    supported("tensorboard.enabled", kBool, "false", "event files for TensorBoard, written by rank 0"),
    supported("tensorboard.output_path", kString, "\"\"", "their directory; empty: the working directory"),
    supported("tensorboard.job_name", kString, "\"DeepSpeedJobName\"", "their subfolder"),
    section("csv_monitor"),
    supported("csv_monitor.enabled", kBool, "false", "one CSV file per metric, written by rank 0"),
    supported("csv_monitor.output_path", kString, "\"\"", "their directory; empty: the working directory"),
    supported("csv_monitor.job_name", kString, "\"DeepSpeedJobName\"", "their subfolder"),

    section("flops_profiler"),
    supported("flops_profiler.enabled", kBool, "false",
              "FLOPs, parameters and latency of one step's forward, by module"),
    supported("flops_profiler.recompute_fwd_factor", kFloat, "0.0", "share of a forward that backward computes again")
        .min(0),
    supported("flops_profiler.profile_step", kInt, "1", "steps done before the one that is profiled").min(0),
    supported("flops_profiler.module_depth", kInt, "-1", "depth of the table of top modules; -1: all").min(-1),
    supported("flops_profiler.top_modules", kInt, "1", "modules shown at each depth").min(0),
    supported("flops_profiler.detailed", kBool, "true", "print the whole tree of modules"),
    supported("flops_profiler.output_file", kString, "null", "where the report goes; null: standard output"),

    section("comms_logger"),
    supported("comms_logger.enabled", kBool, "false", "log every collective; a table of them at the end"),
    supported("comms_logger.prof_all", kBool, "true", "log all kinds"),
    supported("comms_logger.prof_ops", kStringList, "[]",
              "only these, if prof_all is off: all_reduce, reduce_scatter_tensor, all_gather_into_tensor, "
              "all_to_all_single, broadcast, barrier"),
    supported("comms_logger.verbose", kBool, "false", "a line for each collective, too"),
    supported("comms_logger.debug", kBool, "false", "tell apart the phases of a step that issued them"),

    section("timers"),
    section("timers.throughput"),
    supported("timers.throughput.enabled", kBool, "true",
              "the line with samples per second, if steps_per_print is given"),
};

}  // namespace

std::span<const KeySpec> monitoring_keys() {
  return kRows;
}

}  // namespace dslaunch::config
