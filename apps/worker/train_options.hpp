// The options of `dsworker train`.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "config/run_flags.hpp"

namespace dslaunch::worker {

struct TrainOptions {
  std::string model;
  std::string run_dir = "runs/dsworker", device = "auto";
  std::optional<std::string> config, begin_from;
  config::RunFlags flags;
  std::vector<std::string> sets;       // KEY=VALUE
  std::optional<double> timings;       // when dslaunch started, in seconds since 1970
  std::optional<double> hang_timeout;  // seconds
  bool quiet = false, verbose = false;
  bool live = false;  // rank 0 writes the records of base/live_progress.hpp
};

class CommandLine;
// --set, with an `example` of KEY=VALUE. `sets` must outlive the command line.
void add_set_option(CommandLine& line, std::vector<std::string>& sets, const char* example);
// Declares the flags of one group; those that are given are set in `flags`, which must outlive the command line.
void add_run_flags(CommandLine& line, config::FlagGroup group, config::RunFlags& flags);

// Empty: help or the version was printed. Throws UserError(64).
std::optional<TrainOptions> read_train_options(const std::vector<std::string>& arguments);

}  // namespace dslaunch::worker
