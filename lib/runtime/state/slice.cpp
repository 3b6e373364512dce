#include "runtime/state/slice.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace dslaunch::runtime {
namespace {

int64_t product(c10::IntArrayRef sizes) {
  int64_t out = 1;
  for (const int64_t size : sizes) out *= size;
  return out;
}

}  // namespace

bool fits(const Slice& slice, c10::IntArrayRef shape) {
  if (slice.dim < 0 || slice.dim >= static_cast<int64_t>(shape.size())) return false;
  return slice.start >= 0 && slice.length >= 0 && slice.length <= shape[slice.dim] - slice.start;
}

SliceLayout::SliceLayout(c10::IntArrayRef shape, const std::optional<Slice>& slice) {
  DSL_CHECK(!slice || fits(*slice, shape), "a slice lies inside its tensor");
  if (!slice || slice->length == shape[slice->dim]) {
    block_ = stride_ = product(shape);
  } else {
    const auto dim = static_cast<size_t>(slice->dim);
    const int64_t inner = product(shape.slice(dim + 1));
    num_blocks_ = product(shape.slice(0, dim));
    block_ = slice->length * inner;
    offset_ = slice->start * inner;
    stride_ = shape[dim] * inner;
  }
  stride_ = std::max<int64_t>(stride_, 1);  // of an empty tensor; it is a divisor
}

int64_t SliceLayout::to_whole(int64_t element) const {
  DSL_CHECK(element >= 0 && element < numel(), "an element of the slice");
  return element / block_ * stride_ + offset_ + element % block_;
}

int64_t SliceLayout::elements_before(int64_t whole) const {
  return whole / stride_ * block_ + std::clamp<int64_t>(whole % stride_ - offset_, 0, block_);
}

std::vector<SliceRuns> SliceLayout::runs(int64_t begin, int64_t end) const {
  DSL_CHECK(begin >= 0 && begin <= end && end <= numel(), "a range of the slice");
  std::vector<SliceRuns> out;
  const auto add = [&](int64_t count, int64_t length) {
    if (count == 0 || length == 0) return;
    out.push_back({begin, to_whole(begin), count, length, stride_});
    begin += count * length;
  };
  if (begin < end && begin % block_ != 0) add(1, std::min(end - begin, run_length(begin)));
  if (begin < end) add((end - begin) / block_, block_);
  add(1, end - begin);
  return out;
}

}  // namespace dslaunch::runtime
