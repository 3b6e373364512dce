// The results of one step: plain data, and the line that rank 0 prints of them. Empty optionals and non-finite numbers
// become null in JSON.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dslaunch::runtime {

// Of an evaluation: train.metrics by name, without "eval_".
using NamedValues = std::vector<std::pair<std::string, double>>;

struct StepMetrics {
  int64_t step = 0;  // counts from 1
  double loss = 0;
  double lr = 0;                    // the rate that this step used
  std::optional<double> grad_norm;  // before clipping, without the loss scale; empty when not measured
  double loss_scale = 1;            // the scale that this step used
  bool overflow = false;            // the step was skipped
  double step_ms = 0;
  double input_ms = 0;  // of step_ms: rank 0 waited for its batches
  double samples_per_s = 0;
  std::optional<double> tokens_per_s;    // empty when the data has no tokens
  std::optional<int64_t> gpu_mem_bytes;  // peak allocated; empty without a GPU
  std::optional<int64_t> host_mem_bytes;
  std::optional<int64_t> gpu_reserved_bytes;  // peak that the allocator held; a separate key, only with a GPU
  // Separate keys: difficulties and sizes that the data gives the step.
  std::vector<std::pair<std::string, int64_t>> of_data;
  std::optional<double> eval_loss;  // a separate key, only for steps with an evaluation
  NamedValues eval_metrics;         // likewise, as "eval_NAME"
  // Separate keys, only with wall_clock_breakdown: of rank 0, without what overlaps; the update includes the gather of
  // updated parameters.
  std::optional<double> forward_ms, backward_ms, reduce_ms, update_ms;
};

// An evaluation that is not reported in a step's line.
struct EvaluationMetrics {
  int64_t step = 0;  // steps that the evaluated weights have taken
  double eval_loss = 0;
  NamedValues eval_metrics;
  int64_t eval_samples = 0;
};

// A text that the model has written at an evaluation.
struct EvaluationSample {
  std::string prompt, text;              // of ids without a tokenizer: the ids
  std::optional<std::string> reference;  // what the text should be
  std::string finish;                    // why it ends: "end", "stop", "length"
};

// "sample "Once upon a" → " time there was" (1 of 3)", on one line that fits into a terminal.
std::string format_sample(const std::vector<EvaluationSample>& samples);

// "eval_loss 2.4012  eval_accuracy 0.4813"
std::string format_evaluation(double loss, const NamedValues& metrics, const char* separator = "  ");

// "step 120/200  loss 2.3145  lr 3.0e-04  grad_norm 0.87  142 ms/step  7.2k tok/s". `total_steps` 0: not known. Steps
// are padded to the width of the total, so that lines align.
std::string format_progress(const StepMetrics& metrics, int64_t total_steps);

}  // namespace dslaunch::runtime
