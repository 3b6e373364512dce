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
  // Throws SystemError(74).
  void write(const StepMetrics& metrics);
  void write(const EvaluationMetrics& metrics);

 private:
  AppendFile file_;
};

}  // namespace dslaunch::runtime
