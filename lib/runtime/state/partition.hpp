// Partition arithmetic: which parameter lies where in which flat buffer, and which part of it a rank owns. Pure.
#pragma once
#include <cstdint>
#include <vector>

#include "runtime/state/parameter_table.hpp"

namespace dslaunch::runtime {

// A parameter's place in a flat buffer; a whole parameter, in elements.
struct Segment {
  int parameter = 0;
  int64_t offset = 0;
  int64_t numel = 0;
};

// One flat buffer: parameters of one unit and one compute dtype in order of use, padded so that it splits evenly.
struct FlatGroup {
  int unit = 0;
  at::ScalarType dtype = at::kFloat;
  std::vector<Segment> segments;
  int64_t numel = 0;         // sum of the segments
  int64_t padded_numel = 0;  // a multiple of the shards times kShardAlignment
};

// Every shard starts on a multiple of this many elements, so that vector kernels see aligned memory.
inline constexpr int64_t kShardAlignment = 64;

// `compute_dtype` of each parameter by index; `num_shards` >= 1; `max_group_numel`: a unit's buffer is cut after the
// parameter that reaches it (one parameter is never cut). Groups come out in order of units, then of use.
std::vector<FlatGroup> plan_flat_groups(const ParameterTable& table, const std::vector<at::ScalarType>& compute_dtypes,
                                        int num_shards, int64_t max_group_numel);

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// Shard `index` of `count` of a flat buffer.
Range shard_range(const FlatGroup& group, int index, int count);

// A parameter's part inside a range of its flat buffer.
struct Piece {
  int parameter = 0;
  int64_t begin = 0;  // first element within the parameter
  int64_t count = 0;
  int64_t offset = 0;  // within the range
};
std::vector<Piece> pieces_in(const FlatGroup& group, Range range);

}  // namespace dslaunch::runtime
