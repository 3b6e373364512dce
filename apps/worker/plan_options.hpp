// The options of `dsworker plan`.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/run_flags.hpp"

namespace dslaunch::worker {

struct PlanOptions {
  std::string model;  // empty with `largest`
  std::string config;
  config::RunFlags flags;
  std::vector<std::string> sets;  // KEY=VALUE
  std::string device = "auto";
  int num_gpus = 1, num_nodes = 1;
  std::optional<int64_t> gpu_memory, host_memory, activations;  // bytes
  std::string suggest;                                          // the config to write; empty: not asked for
  // Rates that are given, per second; the others are measured where that is possible.
  std::optional<double> tflops;
  std::optional<int64_t> device_bandwidth, link_bandwidth, host_bandwidth, network_bandwidth, file_bandwidth;
  bool measure = false, largest = false, json = false;
};

// Empty: help or the version was printed. Throws UserError(64).
std::optional<PlanOptions> read_plan_options(const std::vector<std::string>& arguments);

}  // namespace dslaunch::worker
