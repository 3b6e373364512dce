// The options of `dslaunch bench`.
#pragma once
#include <optional>
#include <string>

#include "arguments.hpp"

namespace dslaunch::launcher {

struct BenchIoOptions {
  std::string directory = ".";
  int seconds = 20;
  bool json = false;
};

// Throws UserError(64) for invalid options. Empty: help was requested and printed.
std::optional<BenchIoOptions> read_bench_options(const Arguments& arguments);

}  // namespace dslaunch::launcher
