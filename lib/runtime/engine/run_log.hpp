// What a run tells while it goes: metrics.jsonl and config.resolved.json in its folder and progress lines on standard
// output. Rank 0 writes, the others do nothing. One thread.
#pragma once
#include <c10/core/Device.h>

#include <optional>
#include <string>

#include "runtime/engine/engine.hpp"
#include "runtime/telemetry/metrics_file.hpp"
#include "runtime/telemetry/step_metrics.hpp"

namespace dslaunch::runtime {

struct RunLogOptions {
  std::string run_dir;
  std::string resolved_config;
  int rank = 0, world_size = 1;
  bool quiet = false;
  int64_t total_steps = 0;
  int64_t steps_per_print = 10;
  int64_t eval_interval = 0;
  int64_t resumed_step = 0;
  int64_t train_batch = 1;
};

class RunLog {
 public:
  // Makes the run's folder. Throws SystemError (73, 74).
  RunLog(RunLogOptions options, at::Device device);

  // `time_line`: where the step's time went, shown with its progress line unless empty.
  void report_step(const StepResult& result, const std::string& time_line);
  // The mean loss over the evaluation data after `step`; joins that step's line if it is the last one reported.
  void report_evaluation(int64_t step, double loss);
  void finish(bool stopped, const std::string& checkpoint);

 private:
  bool writes() const { return file_.has_value(); }
  void write_pending();

  const RunLogOptions options_;
  const at::Device device_;
  std::optional<MetricsFile> file_;
  std::optional<StepMetrics> pending_;  // a step whose evaluation may still come
};

}  // namespace dslaunch::runtime
