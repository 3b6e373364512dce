// What a run tells while it goes: metrics.jsonl and config.resolved.json in its folder, the monitors' files, and lines
// on standard output. Rank 0 writes, the others do nothing. One thread.
#pragma once
#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/job_config.hpp"
#include "runtime/engine/engine.hpp"
#include "runtime/engine/step_monitors.hpp"
#include "runtime/telemetry/deepspeed_lines.hpp"
#include "runtime/telemetry/metrics_file.hpp"
#include "runtime/telemetry/monitor.hpp"
#include "runtime/telemetry/step_metrics.hpp"

namespace dslaunch::runtime {

struct RunLogOptions {
  std::string run_dir;
  std::string resolved_config;
  int rank = 0, world_size = 1;
  bool quiet = false;
  int64_t total_steps = 0;
  bool evaluates_at_end = false;
  bool eval_only = false;  // the folder's metrics and config are another run's: they stay, and a line is added
  int64_t resumed_step = 0;
};

class RunLog {
 public:
  // Makes the run's folder. `config` must outlive this. Throws SystemError (73, 74).
  RunLog(RunLogOptions options, const config::JobConfig& config, at::Device device);

  void report_step(const StepResult& result, const StepReport& report);
  // The evaluation after `step`; joins that step's line if it is the last one reported, else has a line of its own.
  void report_evaluation(int64_t step, const EvaluationResult& result);
  // Before a checkpoint of the last step: who goes on from that takes the step no second time.
  void keep_last_step();
  // Rank 0: whether the evaluation after `step` has been reported, by an earlier start perhaps.
  bool has_evaluation(int64_t step) const;
  // Rank 0: whether an earlier start reported `step` without the evaluation behind it.
  bool lacks_evaluation(int64_t step) const;
  // `lines`: the monitors' last ones.
  void finish(bool stopped, const std::string& checkpoint, const std::vector<std::string>& lines);

 private:
  bool writes() const { return file_.has_value(); }
  StepMetrics metrics_of(const StepResult& result, const StepReport& report) const;
  void show(const StepResult& result, const StepMetrics& metrics, const StepReport& report) const;
  void show_deepspeed_lines(const StepResult& result, const StepReport& report) const;
  void write_pending();

  const RunLogOptions options_;
  const config::JobConfig& config_;
  const at::Device device_;
  std::optional<MetricsFile> file_;
  std::vector<std::unique_ptr<Monitor>> monitors_;
  ThroughputAverage throughput_;
  std::optional<StepMetrics> pending_;  // a step whose evaluation may still come
  bool pending_is_kept_ = false;        // has its line, without the evaluation
};

}  // namespace dslaunch::runtime
