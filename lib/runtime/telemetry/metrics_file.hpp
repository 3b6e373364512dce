// metrics.jsonl: one JSON object per step, one write per line, so that a reader never sees half a line; samples.jsonl:
// the same for the texts of evaluations. One thread.
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "runtime/telemetry/append_file.hpp"
#include "runtime/telemetry/step_metrics.hpp"

namespace dslaunch::runtime {

// One line without its newline.
std::string to_json_line(const StepMetrics& metrics);
std::string to_json_line(const EvaluationMetrics& metrics);
std::string to_json_line(int64_t step, const EvaluationSample& sample);

class MetricsFile {
 public:
  // Appends after the line of step `resumed_step`: removes later lines (of steps that will be repeated) and a line that
  // a kill cut off. 0: starts an empty file. Throws SystemError (73, 74).
  MetricsFile(const std::string& path, int64_t resumed_step);
  static constexpr int64_t kKeepAll = std::numeric_limits<int64_t>::max();  // as resumed_step: keeps all complete lines
  // Throws SystemError(74). If the file was removed since, it is created again, with its directory, and a warning is
  // logged. If that fails, its lines are lost, with a warning: this must not end a run of weeks.
  void write(const StepMetrics& metrics);
  void write(const EvaluationMetrics& metrics);
  void write(int64_t step, const std::vector<EvaluationSample>& samples);
  // Replaces the last line that was written, with values of its step that have become known since.
  void rewrite_last(const StepMetrics& metrics);
  static bool has_step(const std::string& path, int64_t step);
  // Whether a line has the loss of the evaluation after `step`.
  static bool has_evaluation(const std::string& path, int64_t step);
  // Values of evaluations ("eval_loss") by step, up to `last_step`; null is NaN. Of several evaluations of a step the
  // first one, which is the run's own.
  static std::map<int64_t, double> evaluated_values(const std::string& path, const std::string& name,
                                                    int64_t last_step);

 private:
  bool recreate_if_removed(int64_t step);

  const std::string path_;
  AppendFile file_;
  int64_t last_line_ = 0;  // offset of its start
  bool is_lost_ = false;   // removed, and could not be created again
};

}  // namespace dslaunch::runtime
