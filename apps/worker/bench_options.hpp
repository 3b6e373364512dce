// The options of `dsworker bench`.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/run_flags.hpp"

namespace dslaunch::worker {

struct BenchOptions {
  std::string model, config;
  config::RunFlags flags;
  std::vector<std::string> sets;  // KEY=VALUE
  std::string device = "auto";
  std::optional<int64_t> steps, warmup;  // empty: as many as suit the device
  bool against_torch = false, json = false;
};

// Empty: help or the version was printed. Throws UserError(64).
std::optional<BenchOptions> read_bench_options(const std::vector<std::string>& arguments);

}  // namespace dslaunch::worker
