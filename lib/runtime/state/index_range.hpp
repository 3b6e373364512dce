// Ranges of indices. Plain data.
#pragma once
#include <cstdint>
#include <limits>

namespace dslaunch::runtime {

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// Part of a tensor along one dim, as Python writes it: tensor[:, begin:end].
struct IndexRange {
  int64_t dim = 0;    // negative: counted from the last dim
  int64_t begin = 0;  // begin and end may be negative, counted from the end of the dim
  int64_t end = std::numeric_limits<int64_t>::max();
  bool operator==(const IndexRange&) const = default;
  bool is_all() const { return begin == 0 && end == std::numeric_limits<int64_t>::max(); }
};

}  // namespace dslaunch::runtime
