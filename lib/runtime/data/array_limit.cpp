#include "runtime/data/array_limit.hpp"

#include <limits>

namespace dslaunch::runtime {
namespace {

// The elements that a range of a batch holds, by index in the flattened batch: those at [begin, end) along a dim of
// this size and stride.
class ElementsInRange {
 public:
  ElementsInRange(const IndexRange& range, const at::Tensor& batch) {
    if (range.is_all()) return;
    const int64_t dim = range.dim < 0 ? range.dim + batch.dim() : range.dim;
    const bool runs_inside_samples = dim >= 1 && dim < batch.dim();
    if (!runs_inside_samples) {
      end_ = begin_;
      return;
    }
    size_ = batch.size(dim);
    stride_ = batch.stride(dim);
    const auto from_start = [&](int64_t at) { return at < 0 ? at + size_ : at; };
    begin_ = from_start(range.begin);
    end_ = from_start(range.end);
  }
  bool has(int64_t element) const {
    const int64_t at = element / stride_ % size_;
    return at >= begin_ && at < end_;
  }

 private:
  int64_t size_ = 1, stride_ = 1;
  int64_t begin_ = 0, end_ = std::numeric_limits<int64_t>::max();
};

template <class T>
std::optional<int64_t> first_outside_of(const at::Tensor& batch, const ArrayLimit& limit) {
  const T* values = batch.const_data_ptr<T>();
  const ElementsInRange limited(limit.range, batch);
  for (int64_t i = 0; i < batch.numel(); ++i) {
    const auto value = static_cast<int64_t>(values[i]);
    const bool is_allowed = (value >= 0 && value < limit.bound) || value == limit.ignored;
    if (!is_allowed && limited.has(i)) return i;
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> first_outside(const at::Tensor& batch, const ArrayLimit& limit) {
  switch (batch.scalar_type()) {
    case at::kLong:
      return first_outside_of<int64_t>(batch, limit);
    case at::kInt:
      return first_outside_of<int32_t>(batch, limit);
    case at::kShort:
      return first_outside_of<int16_t>(batch, limit);
    case at::kChar:
      return first_outside_of<int8_t>(batch, limit);
    case at::kByte:
      return first_outside_of<uint8_t>(batch, limit);
    default:
      return std::nullopt;
  }
}

}  // namespace dslaunch::runtime
