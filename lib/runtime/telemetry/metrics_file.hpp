// metrics.jsonl: one JSON object a step, one write a line, so that a reader never sees half of one. One thread.
#pragma once
#include <cstdint>
#include <limits>
#include <string>

#include "runtime/telemetry/append_file.hpp"
#include "runtime/telemetry/step_metrics.hpp"

namespace dslaunch::runtime {

// One line without its end.
std::string to_json_line(const StepMetrics& metrics);
std::string to_json_line(const EvaluationMetrics& metrics);

class MetricsFile {
 public:
  // Appends after the line of step `resumed_step`: later lines (steps that will be taken again) and a line that a kill
  // cut in half are removed. 0: starts afresh. Throws SystemError (73, 74).
  MetricsFile(const std::string& path, int64_t resumed_step);
  static constexpr int64_t kKeepAll = std::numeric_limits<int64_t>::max();  // as resumed_step: all whole lines stay
  // Throws SystemError(74). A file that was removed since is made again, its folder too, with a warning; where it
  // cannot be, its lines are lost, with a warning: a run of weeks does not end for it.
  void write(const StepMetrics& metrics);
  void write(const EvaluationMetrics& metrics);
  // The last line that was written, with what has become known of its step since.
  void write_again(const StepMetrics& metrics);
  static bool has_step(const std::string& path, int64_t step);
  // Whether a line has the loss of the evaluation after `step`.
  static bool has_evaluation(const std::string& path, int64_t step);

 private:
  bool begin_again_if_gone(int64_t step);

  const std::string path_;
  AppendFile file_;
  int64_t last_line_ = 0;  // where it begins
  bool is_lost_ = false;   // removed, and cannot be made again
};

}  // namespace dslaunch::runtime
