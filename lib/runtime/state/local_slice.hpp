// Which part of a whole tensor a tensor parallel rank holds. Plain data; pure; any thread.
//
// The local tensor is the whole one with dim `dim` replaced by the ranges, back to back in their order. Several ranges
// serve fused weights (the rank's heads of q, of k and of v) and experts; different lengths on different ranks serve
// heads that the tensor ranks do not divide. The slices of all ranks of a tensor group cover the whole tensor.
#pragma once
#include <cstdint>
#include <vector>

#include "runtime/state/index_range.hpp"

namespace dslaunch::runtime {

struct LocalSlice {
  int64_t dim = 0;
  int64_t whole = 0;          // size of this dim of the whole tensor
  std::vector<Range> ranges;  // of this dim; none overlap, none are empty
  // Tensor ranks that hold the same ranges count from 0 as `copy`; the first of them saves and counts the parameter.
  int copy = 0, num_copies = 1;

  int64_t length() const {  // size of this dim of the local tensor
    int64_t out = 0;
    for (const Range& range : ranges) out += range.size();
    return out;
  }
  bool operator==(const LocalSlice&) const = default;
};

}  // namespace dslaunch::runtime
