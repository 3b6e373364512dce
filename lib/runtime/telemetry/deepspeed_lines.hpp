// The lines that DeepSpeed's engine logs, for scripts and users that look for them. Pure, except the running average.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::runtime {

// The value that DeepSpeed shows for an optimizer group as `mom`: its betas, or its momentum.
struct Momentum {
  bool is_betas = true;
  double first = 0.9, second = 0.999;
};

// "step=10, skipped=0, lr=[0.001], mom=[(0.9, 0.999)]"
std::string format_step_line(int64_t step, int64_t skipped, const std::vector<double>& lr,
                             const std::vector<Momentum>& momentum);

// Samples per second as DeepSpeed's ThroughputTimer computes it: the first two steps of a process are left out.
class ThroughputAverage {
 public:
  ThroughputAverage(int64_t samples_per_step, int64_t micro_batches_per_step)
      : samples_(samples_per_step), micro_batches_(micro_batches_per_step) {}

  void add_step(double milliseconds);
  // "micro_step=30/global_step=10, RunningAvgSamplesPerSec=…, CurrSamplesPerSec=…, MemAllocated=…GB,
  // MaxMemAllocated=…GB" and, if the FLOPs of a step are known, ", TFLOPS=…" per rank. Empty before the third step.
  std::string line(int64_t step, int64_t allocated_bytes, int64_t peak_bytes,
                   std::optional<double> flops_per_step) const;

 private:
  const int64_t samples_, micro_batches_;
  int64_t steps_ = 0;
  double total_seconds_ = 0, last_seconds_ = 0;
};

}  // namespace dslaunch::runtime
