// Measures training steps of a model with a config: the engine of a run, on one rank, without run directory, log and
// checkpoints. On the engine's thread.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

#include "comm/communicator.hpp"
#include "config/job_config.hpp"
#include "runtime/device/device.hpp"
#include "runtime/engine/bench/step_measurement.hpp"

namespace dslaunch::runtime::engine::bench {

struct StepCounts {
  int64_t warmup = 10;   // at least 2: the arithmetic of the second step is counted
  int64_t timed = 20;    // at least 1
  int64_t profiled = 3;  // after the timed ones
};

// `alone`: a communicator of size 1 on the device. Throws what a run throws for a model, data and a config that do not
// belong together, or do not fit.
StepMeasurement measure_step(const std::string& model_path, const config::JobConfig& config,
                             const device::Device& device, comm::Communicator& alone, const StepCounts& counts);

// The same config in eager TorchScript: without graph passes that have a switch, fused kernels and capture. What is
// left (dtypes, devices, training mode) makes the file run at all.
config::JobConfig in_eager_torchscript(config::JobConfig config);

// The type of the matrix products of a run with this config.
at::ScalarType gemm_dtype(const config::JobConfig& config, at::Device device);

}  // namespace dslaunch::runtime::engine::bench
