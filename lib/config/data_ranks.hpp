// world size = data ranks × pipeline stages × tensor-parallel ranks: computes the data ranks, or proposes numbers that
// divide. Pure.
#pragma once
#include <cstdint>

#include "base/result.hpp"

namespace dslaunch::config {

// All at least 1. Without a solution the error states the numbers and the nearest ones that are possible.
Result<int> solve_data_ranks(int world_size, int64_t stages, int64_t tensor);

// Whether groups of zero_hpz_partition_size ranks divide the data ranks; the error has both numbers.
Result<> check_hpz_partition(int64_t partition_size, int data_ranks);

}  // namespace dslaunch::config
