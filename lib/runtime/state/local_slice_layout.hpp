// Where the elements of a tensor parallel rank's part of a parameter lie: in its local tensor and in the whole
// parameter, both flattened in row-major order. Any thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "runtime/state/parameter_table.hpp"
#include "runtime/state/slice.hpp"

namespace dslaunch::runtime {

// The elements of one range of the slice among [local_begin, …) of the local tensor, "the run". They are back to back
// in the flattened range, and in the run unless other ranges lie between them.
class RangePart {
 public:
  // `in_local`: of the range, in the local tensor.
  RangePart(std::optional<Slice> slice, const SliceLayout& in_local, Range local);

  const std::optional<Slice>& slice() const { return slice_; }  // of the whole parameter; empty: all of it
  int64_t begin() const { return begin_; }                      // of the flattened range
  int64_t count() const { return count_; }

  // Elements [first, first + numel) of the part: 1-D, a view where they are back to back. `read` returns `numel`
  // elements of the run from `first` on.
  using ReadRun = std::function<at::Tensor(int64_t first, int64_t numel)>;
  at::Tensor gather(int64_t first, int64_t numel, const ReadRun& read) const;
  // Fills the part's elements of the run (1-D, contiguous); `read` writes all of them into its argument.
  void fill(const at::Tensor& run, const std::function<void(const at::Tensor& values)>& read) const;

 private:
  std::optional<Slice> slice_;
  SliceLayout in_local_;
  int64_t local_begin_ = 0;
  int64_t begin_ = 0, count_ = 0;
};

class LocalSliceLayout {
 public:
  // A parameter without a slice is one range.
  explicit LocalSliceLayout(const ParameterInfo& parameter);

  // The position in the whole parameter of an element of the local tensor.
  int64_t to_whole(int64_t element) const;
  // [begin, end) of the local elements, by range; of a slice only ranges that have some of them.
  std::vector<RangePart> parts(int64_t begin, int64_t end) const;
  // Reads elements [begin, begin + out.numel()) of the local tensor: `read` fills its argument with elements of the
  // whole parameter, from `first` on.
  using ReadWhole = std::function<void(int64_t first, const at::Tensor& out)>;
  void read(int64_t begin, const at::Tensor& out, const ReadWhole& read) const;

 private:
  struct RangeLayout {
    std::optional<Slice> slice;
    SliceLayout in_whole, in_local;
  };
  std::vector<RangeLayout> ranges_;
};

// The local tensor out of the whole one, contiguous; without a slice the whole one itself.
at::Tensor local_part(const at::Tensor& whole, const std::optional<LocalSlice>& slice);

}  // namespace dslaunch::runtime
