// world size = data ranks × pipeline stages × tensor-parallel ranks: computes the data ranks, or proposes numbers that
// divide. Pure.
#pragma once
#include <cstdint>

#include "base/result.hpp"

namespace dslaunch::config {

// All at least 1. Without a solution the error states the numbers and the nearest ones that are possible.
Result<int> solve_data_ranks(int world_size, int64_t stages, int64_t tensor);

}  // namespace dslaunch::config
