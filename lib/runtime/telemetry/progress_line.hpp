// The line that rank 0 prints: "step 120/200  loss 2.3145  lr 3.0e-04  grad_norm 0.87  142 ms/step  7.2k tok/s". Pure.
#pragma once
#include <cstdint>
#include <string>

#include "runtime/telemetry/step_metrics.hpp"

namespace dslaunch::runtime {

// `total_steps` 0: not known. Steps are padded to the width of the total, so that lines align.
std::string format_progress(const StepMetrics& metrics, int64_t total_steps);
// 7.2k, 1.35M; at most four characters before the letter.
std::string format_rate(double per_second);

}  // namespace dslaunch::runtime
