// The options of `dsworker train`.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::worker {

struct TrainOptions {
  std::string model;
  std::string run_dir = "runs/dsworker", device = "auto";
  std::optional<std::string> config, resume, begin_from;
  // Keys of the config that are options too, as the config's reader takes them.
  std::vector<std::string> sets;
  std::optional<std::string> steps, epochs, seed, data, inputs, labels, loss;
  std::optional<int64_t> trace;
  int64_t verify = 0;                  // steps; 0: none
  std::optional<double> timings;       // when dslaunch started, in seconds since 1970
  std::optional<double> hang_timeout;  // seconds
  bool eval_only = false, quiet = false, verbose = false;
};

// Empty: help or the version was printed. Throws UserError(64).
std::optional<TrainOptions> read_train_options(const std::vector<std::string>& arguments);

}  // namespace dslaunch::worker
