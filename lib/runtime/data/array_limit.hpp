// The limits on an array's integers, and the search for the first integer of a batch outside them. Pure; any thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "runtime/state/index_range.hpp"

namespace dslaunch::runtime {

struct ArrayLimit {
  int64_t bound = 0;               // in [0, bound)
  std::optional<int64_t> ignored;  // or this value: a label to ignore
  IndexRange range;                // of a batch: dim 0 is the samples; no range selects along it
};

// Its index in the flattened batch, which is contiguous and on the host. Arrays that are not integers have no limit.
std::optional<int64_t> first_outside(const at::Tensor& batch, const ArrayLimit& limit);

}  // namespace dslaunch::runtime
