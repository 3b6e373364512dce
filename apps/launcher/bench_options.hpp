// The options of `dslaunch bench`.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arguments.hpp"

namespace dslaunch::launcher {

enum class BenchSubject { kIo, kAdam, kStep };

struct BenchOptions {
  BenchSubject subject = BenchSubject::kIo;
  std::string directory = ".";                // kIo
  int64_t num_parameters = int64_t{1} << 25;  // kAdam
  int seconds = 20;
  bool json = false;
  std::string model;                      // kStep
  std::vector<std::string> worker_words;  // kStep: dsworker's command line
};

// Throws UserError(64) for invalid options. Empty: help was requested and printed.
std::optional<BenchOptions> read_bench_options(const Arguments& arguments);

}  // namespace dslaunch::launcher
