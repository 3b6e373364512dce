// What `dslaunch bench step` prints, as a text or a JSON document. Pure.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/engine/bench/step_measurement.hpp"

namespace dslaunch::runtime::engine::bench {

struct StepReport {
  std::string model;  // the file
  at::Device device = at::kCPU;
  at::ScalarType compute_dtype = at::kFloat, gemm_dtype = at::kFloat;
  int64_t micro_batch = 1, accumulation = 1;
  int zero_stage = 0;
  double gemm_rate = 0;  // FLOP/s of large matrix products of `gemm_dtype` here
  StepMeasurement own;
  std::optional<StepMeasurement> torch;  // in eager TorchScript
};

// `width`: of a line, which names of kernels fill; at least 80.
std::string report_text(const StepReport& report, size_t width);
std::string report_json(const StepReport& report);

}  // namespace dslaunch::runtime::engine::bench
