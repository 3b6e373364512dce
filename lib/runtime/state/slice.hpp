// A range of a tensor along one dim, as a tensor parallel rank holds it, and where its elements lie in the whole
// tensor. Slice and whole tensor are flattened in row-major order; positions count elements. Pure.
#pragma once
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace dslaunch::runtime {

struct Slice {
  int64_t dim = 0;
  int64_t start = 0, length = 0;
  bool operator==(const Slice&) const = default;
};

// Whether the tensor has this dim and the range lies inside it.
bool fits(const Slice& slice, c10::IntArrayRef shape);

// `count` runs of `length` elements: back to back in the slice, `stride` apart in the whole tensor.
struct SliceRuns {
  int64_t in_slice = 0, in_whole = 0;  // of the first run
  int64_t count = 0, length = 0, stride = 0;
};

class SliceLayout {
 public:
  // `slice` fits `shape`; without a slice it is the whole tensor.
  SliceLayout(c10::IntArrayRef shape, const std::optional<Slice>& slice);

  int64_t numel() const { return block_ * num_blocks_; }
  // The position in the whole tensor of the slice's element `element`, which exists.
  int64_t to_whole(int64_t element) const;
  // How many of the slice's elements lie before position `whole`: where the part of the slice in a range of the whole
  // tensor begins, and where it ends.
  int64_t elements_before(int64_t whole) const;
  // How many elements from this one on are back to back in the whole tensor too.
  int64_t run_length(int64_t element) const { return block_ - element % block_; }
  // [begin, end) of the slice, in order; at most three: the rest of a run, complete runs, the begin of a run.
  std::vector<SliceRuns> runs(int64_t begin, int64_t end) const;

 private:
  // The slice is num_blocks_ times block_ elements, the first at offset_ of the whole tensor, stride_ apart.
  int64_t num_blocks_ = 1, block_ = 1, offset_ = 0, stride_ = 1;
};

}  // namespace dslaunch::runtime
