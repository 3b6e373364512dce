// How the ranks of a tensor group hold a value: alike, each a part of one dim, or each a summand. Plain data; pure; any
// thread.
//
// A sharded dim consists of segments (q, k and v of a fused weight), each of them of items that stay whole (heads,
// rows) and are divided over the ranks in turn. An item of a value is the item with the same number of every value that
// it was made from, whatever its width there, so that what one value demands of its items reaches the parameter they
// began in.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/state/index_range.hpp"
#include "runtime/state/local_slice.hpp"

namespace dslaunch::runtime::model::placement {

// A segment of a parameter that the plan has split, or positions of sequences (sequence_walk.hpp).
struct Origin {
  int parameter = 0;   // kPositions: none
  size_t segment = 0;  // of kPositions: the number of the length
  auto operator<=>(const Origin&) const = default;
};
inline constexpr int kPositions = -1;
using Origins = std::vector<Origin>;  // sorted, each once
Origins united(const Origins& one, const Origins& other);
bool meets(const Origins& one, const Origins& other);

struct Segment {
  int64_t items = 0, width = 1;
  Origins origins = {};
  int64_t length() const { return items * width; }
  bool lies_like(const Segment& other) const { return items == other.items && width == other.width; }
};
using Segments = std::vector<Segment>;

int64_t length_of(const Segments& segments);
Origins origins_of(const Segments& segments);
bool lie_alike(const Segments& one, const Segments& other);

enum class Kind : uint8_t {
  kWhole,    // the same on all ranks
  kSharded,  // of dim `dim` each rank has its items
  kPartial,  // the sum over the ranks is the value
};

// By rank: the ranges of a dim.
using Layout = std::vector<std::vector<Range>>;

struct Placement {
  Kind kind = Kind::kWhole;
  int64_t dim = 0;
  Segments segments = {};
  int64_t groups = 1;    // so many times the segments one after the other, for each of as many samples: a dim of a view
  Layout shared = {};    // instead of segments, of a whole value as an operator reads it: ranks may have the same parts
  Origins origins = {};  // of a partial value: those of the dim that was summed over

  bool is_whole() const { return kind == Kind::kWhole; }
  bool is_sharded() const { return kind == Kind::kSharded; }
  bool is_partial() const { return kind == Kind::kPartial; }
  bool is_of_positions() const;
};
Placement sharded(int64_t dim, Segments segments, int64_t groups = 1);
Placement partial(Origins origins);
Placement shared(int64_t dim, Layout layout);
Origins origins_of(const Placement& placement);

// Each rank has its positions of a dim that is as long as the sequences of a batch, which only a run knows: `size` is
// that of the analysis.
Placement of_positions(int64_t dim, int64_t size, size_t length);
bool are_positions(const Segments& segments);
// The number of the length.
size_t length_of_positions(const Placement& placement);

// Items are dealt out in order, the first ranks have one more where their number is not a multiple.
std::vector<Range> ranges_of(const Segments& segments, int ranks, int rank);
Layout layout_of(const Segments& segments, int ranks);
int64_t local_length(const Segments& segments, int ranks, int rank);

// As `ranges_of`, adjacent ones joined.
LocalSlice slice_of(const Placement& placement, int ranks, int rank);

// Of a dim about which nothing else is known yet.
Segment segment_of_length(int64_t length, int ranks);

}  // namespace dslaunch::runtime::model::placement
