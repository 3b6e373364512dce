// Rates of this machine for predict_step(): some tenths of a second of matrix products and copies. One thread.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "runtime/engine/plan/predict_step.hpp"

namespace dslaunch::runtime::engine::plan {

// flops, device_bytes, link_bytes and host_bytes; on the CPU the last three are one. Network and files are not
// measured.
Rates measure_rates(at::Device device, at::ScalarType compute_dtype);

// FLOP/s of large matrix products, back to back for some tenths of a second, so that a GPU is as fast as its power
// allows for long; what a step's rate is compared with.
double measure_gemm_rate(at::Device device, at::ScalarType dtype);

}  // namespace dslaunch::runtime::engine::plan
