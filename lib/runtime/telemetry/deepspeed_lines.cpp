#include "runtime/telemetry/deepspeed_lines.hpp"

#include "base/format.hpp"
#include "runtime/telemetry/python_text.hpp"

namespace dslaunch::runtime {
namespace {

constexpr int64_t kWarmupSteps = 2;

}  // namespace

std::string format_step_line(int64_t step, int64_t skipped, const std::vector<double>& lr,
                             const std::vector<Momentum>& momentum) {
  std::vector<std::string> rates, moments;
  for (double rate : lr) rates.push_back(python_float(rate));
  for (const auto& group : momentum) {
    moments.push_back(group.is_betas ? fmt::format("({}, {})", python_float(group.first), python_float(group.second))
                                     : python_float(group.first));
  }
  return fmt::format("step={}, skipped={}, lr=[{}], mom=[{}]", step, skipped, fmt::join(rates, ", "),
                     fmt::join(moments, ", "));
}

void ThroughputAverage::add_step(double milliseconds) {
  steps_ += 1;
  if (steps_ <= kWarmupSteps) return;
  last_seconds_ = milliseconds / 1e3;
  total_seconds_ += last_seconds_;
}

std::string ThroughputAverage::line(int64_t step, int64_t allocated_bytes, int64_t peak_bytes,
                                    std::optional<double> flops_per_step) const {
  if (steps_ <= kWarmupSteps || total_seconds_ <= 0) return {};
  const auto samples = static_cast<double>(samples_);
  std::string out = fmt::format(
      "micro_step={}/global_step={}, RunningAvgSamplesPerSec={}, CurrSamplesPerSec={}, MemAllocated={}GB, "
      "MaxMemAllocated={}GB",
      step * micro_batches_, step, python_float(samples * static_cast<double>(steps_ - kWarmupSteps) / total_seconds_),
      python_float(samples / last_seconds_), python_gigabytes(allocated_bytes), python_gigabytes(peak_bytes));
  if (flops_per_step) out += fmt::format(", TFLOPS={:.2f}", *flops_per_step / last_seconds_ / 1e12);
  return out;
}

}  // namespace dslaunch::runtime
