// What `dslaunch bench step` has measured. Plain data.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/model/interface/graph_report.hpp"
#include "runtime/telemetry/operator_times.hpp"
#include "runtime/telemetry/step_flops.hpp"

namespace dslaunch::runtime::engine::bench {

// The most during the timed steps; bytes.
struct StepMemory {
  int64_t allocated = 0;  // by tensors
  int64_t reserved = 0;   // by the allocator of a GPU; 0: a CPU's allocator keeps nothing back
  int64_t process = 0;    // of the host, by the whole process
};

// Kernels of a GPU, or operators of a CPU, in some steps of their own.
struct StepProfile {
  int64_t num_steps = 0;
  double wall_ms = 0;          // of all of them
  double busy_ms = 0;          // in which at least one kernel ran; on a CPU that of operators
  std::vector<WorkTime> work;  // of all of them, the longest first
};

// What groups of operators became when they first ran; of a GPU.
struct RegionPrograms {
  int64_t num_groups = 0;            // for each size of their inputs
  int64_t num_regions = 0;           // generated kernels, each with one for backward
  std::vector<std::string> why_not;  // of groups whose operators run one by one
};

struct StepMeasurement {
  int64_t num_parameters = 0;
  int64_t num_warmup = 0;
  std::vector<double> step_ms;    // of the timed steps, in order
  std::vector<double> held_ms;    // of as many steps with batches that are held on the device
  double first_step_seconds = 0;  // from the start of loading to the end of the first step
  int64_t tokens_per_step = 0;    // 0: the data has none
  int64_t samples_per_step = 0;
  StepMacs macs;  // of one step
  StepMemory memory;
  StepProfile profile;
  bool is_captured = false;
  std::string why_not_captured;
  model::GraphReport graphs;
  RegionPrograms programs;
  std::vector<std::string> notes;  // for the user

  double median_ms() const;
  double median_held_ms() const;
  double min_ms() const;
  double max_ms() const;
  double tokens_per_second() const { return 1000 * static_cast<double>(tokens_per_step) / median_ms(); }
  double samples_per_second() const { return 1000 * static_cast<double>(samples_per_step) / median_ms(); }
  double flops_per_second() const { return 2000 * static_cast<double>(macs.total()) / median_ms(); }
  // Of what the allocator has from the device, the share that no tensor used.
  double fragmentation() const;
};

}  // namespace dslaunch::runtime::engine::bench
