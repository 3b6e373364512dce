#include "runtime/state/local_slice_layout.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <utility>

#include "base/error.hpp"

namespace dslaunch::runtime {
namespace {

// Groups of runs that are one range of the tensor.
bool are_back_to_back(const std::vector<SliceRuns>& groups) {
  return groups.size() == 1 && (groups[0].count == 1 || groups[0].length == groups[0].stride);
}

// The group's elements as rows, out of a tensor whose first element has the position `first`.
at::Tensor rows_of(const at::Tensor& flat, int64_t first, const SliceRuns& group) {
  return flat.as_strided({group.count, group.length}, {group.stride, 1},
                         flat.storage_offset() + group.in_whole - first);
}

}  // namespace

RangePart::RangePart(std::optional<Slice> slice, const SliceLayout& in_local, Range local)
    : slice_(slice),
      in_local_(in_local),
      local_begin_(local.begin),
      begin_(in_local.elements_before(local.begin)),
      count_(in_local.elements_before(local.end) - begin_) {}

at::Tensor RangePart::gather(int64_t first, int64_t numel, const ReadRun& read) const {
  if (numel == 0) return read(0, 0);
  const int64_t begin = begin_ + first;
  const int64_t from = in_local_.to_whole(begin), end = in_local_.to_whole(begin + numel - 1) + 1;
  const at::Tensor run = read(from - local_begin_, end - from);
  const auto groups = in_local_.runs(begin, begin + numel);
  if (are_back_to_back(groups)) return run;
  std::vector<at::Tensor> parts;
  for (const auto& group : groups) parts.push_back(rows_of(run, from, group).reshape({-1}));
  return at::cat(parts);
}

void RangePart::fill(const at::Tensor& run, const std::function<void(const at::Tensor& values)>& read) const {
  const auto groups = in_local_.runs(begin_, begin_ + count_);
  if (groups.empty()) return read(run.narrow(0, 0, 0));
  if (are_back_to_back(groups)) return read(run.narrow(0, groups[0].in_whole - local_begin_, count_));
  const at::Tensor values = at::empty({count_}, run.options());
  read(values);
  for (const auto& group : groups) {
    rows_of(run, local_begin_, group)
        .copy_(values.narrow(0, group.in_slice - begin_, group.count * group.length).view({group.count, group.length}));
  }
}

LocalSliceLayout::LocalSliceLayout(const ParameterInfo& parameter) {
  if (!parameter.slice) {
    const SliceLayout whole(parameter.shape, std::nullopt);
    ranges_.push_back({std::nullopt, whole, whole});
    return;
  }
  const auto& [dim, whole, ranges, copy, num_copies] = *parameter.slice;
  DSL_CHECK(parameter.slice->length() == parameter.shape.at(static_cast<size_t>(dim)),
            "the ranges of a slice are its local tensor");
  int64_t offset = 0;
  for (const Range& range : ranges) {
    const Slice of_whole{dim, range.begin, range.size()}, of_local{dim, offset, range.size()};
    ranges_.push_back(
        {of_whole, SliceLayout(parameter.whole_shape(), of_whole), SliceLayout(parameter.shape, of_local)});
    offset += range.size();
  }
}

int64_t LocalSliceLayout::to_whole(int64_t element) const {
  for (const auto& [slice, in_whole, in_local] : ranges_) {
    const int64_t in_range = in_local.elements_before(element);
    if (in_local.elements_before(element + 1) > in_range) return in_whole.to_whole(in_range);
  }
  throw InternalError(__FILE__, __LINE__, "to_whole", "an element of the local tensor is in one of its ranges");
}

std::vector<RangePart> LocalSliceLayout::parts(int64_t begin, int64_t end) const {
  std::vector<RangePart> out;
  for (const auto& range : ranges_) {
    RangePart part(range.slice, range.in_local, {begin, end});
    if (part.count() > 0 || !range.slice) out.push_back(std::move(part));
  }
  return out;
}

// Every run of a range in the whole parameter is back to back in the local tensor, too.
void LocalSliceLayout::read(int64_t begin, const at::Tensor& out, const ReadWhole& read) const {
  const int64_t end = begin + out.numel();
  for (const auto& [slice, in_whole, in_local] : ranges_) {
    const int64_t first = in_local.elements_before(begin), last = in_local.elements_before(end);
    for (const auto& runs : in_whole.runs(first, last)) {
      for (int64_t k = 0; k < runs.count; ++k) {
        const int64_t local = in_local.to_whole(runs.in_slice + k * runs.length);
        read(runs.in_whole + k * runs.stride, out.narrow(0, local - begin, runs.length));
      }
    }
  }
}

at::Tensor local_part(const at::Tensor& whole, const std::optional<LocalSlice>& slice) {
  if (!slice) return whole;
  std::vector<at::Tensor> parts;
  for (const Range& range : slice->ranges) parts.push_back(whole.narrow(slice->dim, range.begin, range.size()));
  return parts.size() == 1 ? parts[0].contiguous() : at::cat(parts, slice->dim);
}

}  // namespace dslaunch::runtime
