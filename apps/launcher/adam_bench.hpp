// `dslaunch bench adam`: how fast the CPU optimizers of offloading are on this machine's cores, beside moving the same
// bytes without computing anything, and what binds them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/optim/update_rounds.hpp"

namespace dslaunch::launcher {

struct UpdateRate {
  runtime::optim::host::RoundOptimizer optimizer = runtime::optim::host::RoundOptimizer::kAdam;
  int num_threads = 1;
  int64_t bytes = 0;              // of an element
  double update = 0, stream = 0;  // bytes per second: of the update, and of moving its bytes, with the faster stores
};

struct AdamBenchReport {
  int64_t num_parameters = 0;
  std::string instruction_set;
  int num_cores = 1;
  std::vector<UpdateRate> by_threads;    // AdamW; not empty, ascending
  std::vector<UpdateRate> by_optimizer;  // with all threads
};

// What a rate is bound by: "arithmetic", where it is well below the stream of its own threads; "memory of these cores",
// where more threads have a faster stream; else "memory". Pure.
std::string binding(const UpdateRate& rate, const AdamBenchReport& report);
// The least number of threads within 3 % of the best.
int enough_threads(const AdamBenchReport& report);
std::string describe(const AdamBenchReport& report, bool json);

// 1, 2, 4 and so on, and all cores. Pure.
std::vector<int> thread_counts(int num_cores);
AdamBenchReport measure_updates(int64_t num_parameters, int num_cores, int seconds);

}  // namespace dslaunch::launcher
