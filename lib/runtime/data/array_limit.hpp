// What the integers of an array must be, and the first in a batch that is not. Pure; any thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "runtime/state/index_range.hpp"

namespace dslaunch::runtime {

struct ArrayLimit {
  int64_t bound = 0;               // in [0, bound)
  std::optional<int64_t> ignored;  // or this: a label to ignore
  IndexRange range;                // of a batch: dim 0 are its samples, along which no range runs
};

// Its place in the flattened batch, which is contiguous and on the host. What is no integer has no limit.
std::optional<int64_t> first_outside(const at::Tensor& batch, const ArrayLimit& limit);

}  // namespace dslaunch::runtime
