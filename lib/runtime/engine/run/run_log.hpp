// What a run reports while it trains: metrics.jsonl, samples.jsonl and config.resolved.json in its directory, the
// monitors' files, and lines on standard output. Rank 0 writes, the other ranks do nothing. One thread.
#pragma once
#include <c10/core/Device.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/input_wait.hpp"
#include "config/job_config.hpp"
#include "runtime/data/data_schedule.hpp"
#include "runtime/engine/run/step_monitors.hpp"
#include "runtime/engine/step/engine.hpp"
#include "runtime/telemetry/deepspeed_lines.hpp"
#include "runtime/telemetry/metrics_file.hpp"
#include "runtime/telemetry/monitor.hpp"
#include "runtime/telemetry/run_events.hpp"
#include "runtime/telemetry/run_summary.hpp"
#include "runtime/telemetry/step_metrics.hpp"

namespace dslaunch::runtime::engine::run {

struct RunLogOptions {
  std::string run_dir;
  std::string resolved_config;
  std::string job, host;  // of this start; the job may be empty
  int rank = 0;           // of the world
  int data_ranks = 1;
  bool quiet = false;
  bool live = false;            // records for a live line (base/live_progress.hpp)
  int64_t steps_per_epoch = 0;  // 0: endless
  int64_t total_steps = 0;
  bool evaluates_at_end = false;
  bool eval_only = false;  // the directory's metrics and config belong to another run: they stay, and a line is added
  int64_t resumed_step = 0;
  DataSchedule schedule = {};
};

// How a run ends.
struct RunEnd {
  int64_t step = 0;                // the last one done
  bool stopped = false;            // on request
  std::string checkpoint;          // the last one; empty: none
  std::string best;                // the best checkpoint and its value; empty: not asked for, or none
  std::string input;               // how steps waited for their input, where that limits the run
  std::vector<std::string> lines;  // the monitors' final lines
};

class RunLog {
 public:
  // Creates the run directory. `config` must outlive this object. Throws SystemError (73, 74).
  RunLog(RunLogOptions options, const config::JobConfig& config, at::Device device);

  // The lines that say what the run is; an evaluation gets none.
  void report_start(const RunDescription& run);
  void report_step(const step::StepResult& result, const StepReport& report);
  // The evaluation after `step`; joins that step's line if it is the last one reported, else gets a line of its own.
  // `samples`: texts that the model has written then.
  void report_evaluation(int64_t step, const step::EvaluationResult& result,
                         const std::vector<EvaluationSample>& samples = {});
  // Call before a checkpoint of the last step: a run that resumes from that checkpoint does not repeat the step.
  void write_last_step();
  // Rank 0: whether the evaluation after `step` has been reported, possibly by an earlier start.
  bool has_evaluation(int64_t step) const;
  // Rank 0: whether an earlier start reported `step` without the evaluation after it.
  bool lacks_evaluation(int64_t step) const;
  // A checkpoint that all ranks have completed; `time`: when its save began, in seconds since 1970.
  void report_checkpoint(int64_t step, double time);
  void finish(const RunEnd& end);

 private:
  bool writes() const { return file_.has_value(); }
  StepMetrics metrics_of(const step::StepResult& result, const StepReport& report) const;
  void watch_input(const StepMetrics& metrics);
  void show(const step::StepResult& result, const StepMetrics& metrics, const StepReport& report) const;
  void show_deepspeed_lines(const step::StepResult& result, const StepReport& report) const;
  void show_live(const StepMetrics& metrics);
  void report_samples(int64_t step, const std::vector<EvaluationSample>& samples);
  void write_pending();
  void record_resumed_checkpoint(const std::string& checkpoints);

  const RunLogOptions options_;
  const config::JobConfig& config_;
  const at::Device device_;
  std::optional<MetricsFile> file_, samples_file_;
  std::optional<RunEvents> events_;  // not of an evaluation
  std::vector<std::unique_ptr<Monitor>> monitors_;
  ThroughputAverage throughput_;
  RunTotals totals_;
  InputWait input_;  // of this rank
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::optional<StepMetrics> pending_;                          // a step whose evaluation may still follow
  std::chrono::steady_clock::time_point next_record_ = began_;  // of the live line
  bool pending_is_written_ = false;                             // its line is written, without the evaluation
};

}  // namespace dslaunch::runtime::engine::run
