// tensorboard, csv_monitor, wandb, comet, flops_profiler, comms_logger, timers.
#include "config/key_rows.hpp"

namespace dslaunch::config {
namespace {

constexpr KeySpec kRows[] = {
    section("tensorboard"),
    not_yet("tensorboard.enabled", kBool, "false", "event files of TensorBoard; metrics.jsonl is always written"),
    tuning("tensorboard.output_path", kString, "\"\"", "their folder"),
    tuning("tensorboard.job_name", kString, "\"DeepSpeedJobName\"", "their subfolder"),
    section("csv_monitor"),
    not_yet("csv_monitor.enabled", kBool, "false", "one CSV file a metric; metrics.jsonl is always written"),
    tuning("csv_monitor.output_path", kString, "\"\"", "their folder"),
    tuning("csv_monitor.job_name", kString, "\"DeepSpeedJobName\"", "their subfolder"),
    section("wandb"),
    not_yet("wandb.enabled", kBool, "false", "Weights & Biases; metrics.jsonl is always written"),
    tuning("wandb.group", kString, "null", "its group"),
    tuning("wandb.team", kString, "null", "its team"),
    tuning("wandb.project", kString, "\"deepspeed\"", "its project"),
    section("comet"),
    not_yet("comet.enabled", kBool, "false", "Comet; metrics.jsonl is always written"),
    tuning("comet.samples_log_interval", kInt, "100", "samples between two points").min(1),
    tuning("comet.project", kString, "null", "its project"),
    tuning("comet.workspace", kString, "null", "its workspace"),
    tuning("comet.api_key", kString, "null", "its key"),
    tuning("comet.experiment_name", kString, "null", "its name"),
    tuning("comet.experiment_key", kString, "null", "its identity"),
    tuning("comet.online", kBool, "null", "over the network"),
    tuning("comet.mode", kEnum, "null", "new or existing").one_of("get|create|get_or_create"),

    section("flops_profiler"),
    not_yet("flops_profiler.enabled", kBool, "false", "profile one step"),
    tuning("flops_profiler.recompute_fwd_factor", kFloat, "0.0", "share of a forward that is computed twice").min(0),
    tuning("flops_profiler.profile_step", kInt, "1", "which step").min(0),
    tuning("flops_profiler.module_depth", kInt, "-1", "how deep the report goes").min(-1),
    tuning("flops_profiler.top_modules", kInt, "1", "modules shown at each depth").min(0),
    tuning("flops_profiler.detailed", kBool, "true", "the whole tree"),
    tuning("flops_profiler.output_file", kString, "null", "where the report goes"),

    section("comms_logger"),
    not_yet("comms_logger.enabled", kBool, "false", "log every collective"),
    tuning("comms_logger.prof_all", kBool, "true", "all kinds"),
    tuning("comms_logger.prof_ops", kStringList, "[]", "only these"),
    tuning("comms_logger.verbose", kBool, "false", "as they happen"),
    tuning("comms_logger.debug", kBool, "false", "with their callers"),

    section("timers"),
    section("timers.throughput"),
    no_counterpart("timers.throughput.enabled", kBool, "true", "throughput is always in metrics.jsonl"),
    no_counterpart("timers.throughput.synchronized", kBool, "true", "a step has no synchronisation inside"),
};

}  // namespace

std::span<const KeySpec> monitoring_keys() {
  return kRows;
}

}  // namespace dslaunch::config
