// train_batch_size = micro batch × accumulation × data ranks: computes the missing values and explains the result in
// numbers. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "config/job_config.hpp"

namespace dslaunch::config {

struct BatchRequest {
  std::optional<int64_t> train_batch, micro_batch, accumulation;  // as given; all above 0
  bool auto_batch = false;                                        // one of the three is "auto"
  int64_t data_ranks = 1;
  int64_t ranks_per_model = 1;  // for the explanation: above 1, not every rank is a data rank
};

struct BatchSolution {
  Batch batch;
  std::string explanation;  // "train_batch_size 32 = micro batch 4 × accumulation 2 × 4 ranks (…)"
};

// The error, where there is no solution, states the three numbers and a proposal.
Result<BatchSolution> solve_batch(const BatchRequest& request);

}  // namespace dslaunch::config
