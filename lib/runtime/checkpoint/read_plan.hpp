// How to assemble a range of a parameter's state from the pieces of a checkpoint, whatever slices the pieces are cut
// from. Pure; positions and lengths count elements.
#pragma once
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/state/partition.hpp"
#include "runtime/state/slice.hpp"

namespace dslaunch::runtime {

// Elements [begin, end) of a slice of a parameter, or of the whole parameter, flattened.
struct SliceRange {
  std::optional<Slice> slice;
  int64_t begin = 0, end = 0;

  int64_t numel() const { return end - begin; }
  bool operator==(const SliceRange&) const = default;
};

// `count` runs of `length` elements from one piece to the output.
struct PieceCopy {
  size_t piece = 0;
  int64_t from = 0, to = 0;  // of the first run, from the first element of the piece and of the output
  int64_t count = 0, length = 0;
  int64_t from_stride = 0, to_stride = 0;  // between the starts of runs
};

struct ReadPlan {
  std::vector<PieceCopy> copies;
  std::vector<Range> gaps;  // the elements that no piece has, counted as in the request; empty: `copies` fill it
};

// All slices and pieces fit a parameter of that shape; a request may reach beyond its slice, which is a gap. Pieces may
// overlap; those of the request's own slice are preferred.
ReadPlan plan_read(c10::IntArrayRef shape, const std::vector<SliceRange>& pieces, const SliceRange& request);

// The part of `piece`, counted as its begin and end are, that includes all elements which `request` needs of it.
Range needed_part(c10::IntArrayRef shape, const SliceRange& piece, const SliceRange& request);

}  // namespace dslaunch::runtime
