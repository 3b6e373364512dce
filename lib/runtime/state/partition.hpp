// Partition arithmetic: which parameter lies where in which flat buffer, and which part of it a rank owns. Pure.
#pragma once
#include <cstdint>
#include <limits>
#include <vector>

#include "runtime/state/index_range.hpp"
#include "runtime/state/parameter_table.hpp"

namespace dslaunch::runtime {

// A parameter's location in a flat buffer; always a whole parameter; in elements.
struct Segment {
  int parameter = 0;
  int64_t offset = 0;
  int64_t numel = 0;
};

// One flat buffer: parameters of one unit and one compute dtype, padded so that it splits evenly. Segments are ordered
// by optimizer group, then by use, so that a shard consists of a few runs of one optimizer group each.
struct FlatGroup {
  int unit = 0;
  at::ScalarType dtype = at::kFloat;
  bool is_gathered = false;  // stage 3: whole only while the unit runs
  std::vector<Segment> segments;
  int64_t numel = 0;         // sum of the segments
  int64_t padded_numel = 0;  // a multiple of the shards times kShardAlignment
  bool is_frozen = false;    // its parameters are not trained; always gathered
};

// Of the whole buffer.
int64_t bytes_of(const FlatGroup& group);

// Every shard starts on a multiple of this many elements, so that vector kernels see aligned memory.
inline constexpr int64_t kShardAlignment = 64;

struct PartitionOptions {
  std::vector<at::ScalarType> compute_dtypes;  // by parameter
  int num_shards = 1;
  int64_t max_group_numel = 500'000'000;  // a buffer is cut after the parameter that reaches it; never inside one
  std::vector<int> optimizer_groups;      // by parameter; empty: all in one
  bool gathers = false;                   // stage 3
  // Stage 3: parameters of at most this many elements stay whole, up to model_persistence_threshold elements in total.
  int64_t persistence_threshold = 100'000;
  int64_t model_persistence_threshold = std::numeric_limits<int64_t>::max();
};

// Groups are ordered by unit, then by use; groups of frozen parameters come after all others. Frozen parameters that
// are not gathered are in no group.
std::vector<FlatGroup> plan_flat_groups(const ParameterTable& table, const PartitionOptions& options);

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
