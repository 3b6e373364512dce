// What a run says once when it starts and once when it ends: plain data, and the lines that rank 0 prints of them.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/job_config.hpp"
#include "runtime/telemetry/step_metrics.hpp"

namespace dslaunch::runtime {

struct RunDescription {
  std::string model;  // its file
  int64_t num_parameters = 0, num_trainable = 0;
  std::string compute_dtype = "fp32";
  std::string device = "cpu";
  int data_ranks = 1, stages = 1, tensor_ranks = 1, num_hosts = 1;
  int64_t num_samples = 0;      // of the training data; 0: endless
  int64_t steps_per_epoch = 0;  // 0: endless
  int64_t first_step = 1, total_steps = 0;
  std::vector<std::pair<std::string, std::string>> autos;  // keys that were "auto", and what they became
  std::string run_dir, checkpoint_dir;                     // checkpoint_dir is empty: nothing is saved
};

// Eight lines at most, each with a heading of the same width.
std::vector<std::string> format_description(const RunDescription& run, const config::JobConfig& config);
// "40 of 200 steps"; a run that is continued may have done more than it is to do now.
std::string format_steps_done(int64_t done, int64_t total);

// Collects what the last lines of a run say. One thread.
class RunTotals {
 public:
  void add(const StepMetrics& metrics);
  void add_evaluation(int64_t step, double loss, NamedValues metrics = {}) {
    evaluation_ = {step, loss};
    eval_metrics_ = std::move(metrics);
  }
  // Steps, time and rate, losses, the last evaluation, `best`, `input`, memory of the GPU: six lines at most, and none
  // if no step was done.
  // `time`: since the first step began, evaluations and checkpoints included. `best`: the best checkpoint. `input`: how
  // input limits the run. Both may be empty.
  std::vector<std::string> lines(int64_t total_steps, std::chrono::milliseconds time, const std::string& best = "",
                                 const std::string& input = "") const;

 private:
  struct Point {
    int64_t step = 0;
    double loss = 0;
  };
  int64_t num_steps_ = 0;
  double step_ms_ = 0;
  double num_tokens_ = 0, num_samples_ = 0;
  int64_t peak_allocated_ = 0, peak_reserved_ = 0;         // of the GPU; 0: without one
  std::optional<Point> first_, last_, best_, evaluation_;  // best_: the lowest finite loss
  NamedValues eval_metrics_;                               // of the same evaluation
};

}  // namespace dslaunch::runtime
