// What a job says about tensor parallelism, as the analysis takes it. Plain data.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "config/job_config.hpp"

namespace dslaunch::runtime::model::placement {

struct TensorParallelOptions {
  int size = 1, rank = 0;
  std::vector<config::TensorSplitRule> rules = {};  // choices by module name instead of the analysis
  // `rules` must match every GEMM.
  bool needs_rules = false;
  config::TensorProbe probe = config::TensorProbe::kOff;
  bool sequence_parallel = false;    // what lies between the GEMMs is split along the positions
  std::optional<bool> overlap = {};  // of backward's sums over the ranks; empty: on devices

  bool is_on() const { return size > 1; }
};

}  // namespace dslaunch::runtime::model::placement
