#include "runtime/data/batch_assembly.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/state/pinned_memory.hpp"

namespace dslaunch::runtime {
namespace {

// LibTorch's operators have no unsigned types beyond 8 bits, so those become int64.
at::ScalarType batch_dtype(at::ScalarType dtype, at::ScalarType float_dtype) {
  if (c10::isFloatingType(dtype)) return float_dtype;
  if (dtype == at::kUInt16 || dtype == at::kUInt32 || dtype == at::kUInt64) return at::kLong;
  return dtype;
}

// Own loops instead of Tensor::to: worker threads must not each start a pool of OpenMP threads.
template <class From, class To>
void convert_row(const void* from, void* to, int64_t count) {
  const auto* in = static_cast<const From*>(from);
  auto* out = static_cast<To*>(to);
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<To>(in[i]);
}

template <class From>
void convert_from(const void* from, void* to, at::ScalarType dtype, int64_t count) {
  switch (dtype) {
    case at::kFloat:
      return convert_row<From, float>(from, to, count);
    case at::kDouble:
      return convert_row<From, double>(from, to, count);
    case at::kHalf:
      return convert_row<From, at::Half>(from, to, count);
    case at::kBFloat16:
      return convert_row<From, at::BFloat16>(from, to, count);
    default:
      return convert_row<From, int64_t>(from, to, count);
  }
}

void convert(const void* from, at::ScalarType from_dtype, void* to, at::ScalarType to_dtype, int64_t count) {
  switch (from_dtype) {
    case at::kFloat:
      return convert_from<float>(from, to, to_dtype, count);
    case at::kDouble:
      return convert_from<double>(from, to, to_dtype, count);
    case at::kHalf:
      return convert_from<at::Half>(from, to, to_dtype, count);
    case at::kBFloat16:
      return convert_from<at::BFloat16>(from, to, to_dtype, count);
    case at::kFloat8_e4m3fn:
      return convert_from<c10::Float8_e4m3fn>(from, to, to_dtype, count);
    case at::kFloat8_e5m2:
      return convert_from<c10::Float8_e5m2>(from, to, to_dtype, count);
    case at::kUInt16:
      return convert_row<uint16_t, int64_t>(from, to, count);
    case at::kUInt32:
      return convert_row<uint32_t, int64_t>(from, to, count);
    case at::kUInt64:
      return convert_row<uint64_t, int64_t>(from, to, count);
    default:
      DSL_CHECK(false, fmt::format("no data file holds {}", c10::toString(from_dtype)));
  }
}

// Whether a limit speaks of an element of a batch's values, by its place in the flattened sample.
class Coverage {
 public:
  Coverage(const IndexRange& range, const std::vector<int64_t>& sample_shape) {
    if (range.is_all()) return;
    const auto rank = static_cast<int64_t>(sample_shape.size()) + 1;
    const int64_t dim = range.dim < 0 ? range.dim + rank : range.dim;
    if (dim < 1 || dim >= rank) {  // along the samples, or not in this array
      end_ = 0;
      return;
    }
    size_ = sample_shape[static_cast<size_t>(dim - 1)];
    for (auto later = static_cast<size_t>(dim); later < sample_shape.size(); ++later) stride_ *= sample_shape[later];
    const auto from_start = [&](int64_t at) { return at < 0 ? at + size_ : at; };
    begin_ = from_start(range.begin);
    end_ = from_start(range.end);
  }
  bool holds(int64_t element) const {
    const int64_t at = element / stride_ % size_;
    return at >= begin_ && at < end_;
  }

 private:
  int64_t stride_ = 1, size_ = 1;
  int64_t begin_ = 0, end_ = std::numeric_limits<int64_t>::max();
};

// The first element that a limit does not allow; -1: none.
template <class T>
int64_t find_outside(const at::Tensor& values, const ArrayLimit& limit, const std::vector<int64_t>& sample_shape) {
  const T* data = values.const_data_ptr<T>();
  std::optional<Coverage> coverage;
  for (int64_t i = 0; i < values.numel(); ++i) {
    const auto value = static_cast<int64_t>(data[i]);
    if ((value >= 0 && value < limit.bound) || value == limit.ignored) continue;
    if (!coverage) coverage.emplace(limit.range, sample_shape);
    if (coverage->holds(i)) return i;
  }
  return -1;
}

int64_t find_outside(const at::Tensor& values, const ArrayLimit& limit, const std::vector<int64_t>& sample_shape) {
  switch (values.scalar_type()) {
    case at::kLong:
      return find_outside<int64_t>(values, limit, sample_shape);
    case at::kInt:
      return find_outside<int32_t>(values, limit, sample_shape);
    case at::kShort:
      return find_outside<int16_t>(values, limit, sample_shape);
    case at::kChar:
      return find_outside<int8_t>(values, limit, sample_shape);
    case at::kByte:
      return find_outside<uint8_t>(values, limit, sample_shape);
    default:
      return -1;
  }
}

template <class T>
int64_t count_ignored(const at::Tensor& labels) {
  const T* values = labels.const_data_ptr<T>();
  return std::count(values, values + labels.numel(), static_cast<T>(kIgnoredLabel));
}

// Those that a loss averages over.
int64_t count_labels(const at::Tensor& labels, bool has_ignored) {
  if (!has_ignored) return labels.numel();
  switch (labels.scalar_type()) {
    case at::kLong:
      return labels.numel() - count_ignored<int64_t>(labels);
    case at::kInt:
      return labels.numel() - count_ignored<int32_t>(labels);
    case at::kShort:
      return labels.numel() - count_ignored<int16_t>(labels);
    case at::kChar:
      return labels.numel() - count_ignored<int8_t>(labels);
    default:
      return labels.numel();
  }
}

}  // namespace

BatchAssembler::BatchAssembler(std::shared_ptr<const SampleSource> source, ArraySelection selection,
                               AssemblyOptions options)
    : source_(std::move(source)), selection_(std::move(selection)), options_(std::move(options)) {}

Batch BatchAssembler::assemble(const MicroBatchPlan& plan) const {
  Batch batch;
  batch.num_samples = plan.num_samples;
  batch.first = plan.first;
  batch.after = plan.after;
  for (size_t array : selection_.inputs) {
    batch.inputs.push_back(gather(array, plan.samples, options_.compute_dtype));
    const at::Tensor& values = batch.inputs.back();
    if (batch.num_tokens == 0 && c10::isIntegralType(values.scalar_type(), false) && values.dim() >= 2) {
      batch.num_tokens = plan.num_samples * source_->arrays()[array].sample_numel();
    }
  }
  for (size_t array : selection_.labels) batch.labels.push_back(gather(array, plan.samples, options_.label_dtype));
  if (plan.num_samples > 0) {
    for (const at::Tensor& labels : batch.labels) batch.num_labels += count_labels(labels, options_.has_ignored_labels);
  }
  return batch;
}

at::Tensor BatchAssembler::gather(size_t array, const std::vector<int64_t>& samples, at::ScalarType float_dtype) const {
  const ArrayInfo& info = source_->arrays()[array];
  const at::ScalarType dtype = batch_dtype(info.dtype, float_dtype);
  std::vector<int64_t> shape{static_cast<int64_t>(samples.size())};
  shape.insert(shape.end(), info.sample_shape.begin(), info.sample_shape.end());
  at::Tensor values = options_.pin ? pinned_if_possible(shape, dtype) : at::empty(shape, dtype);

  const int64_t numel = info.sample_numel();
  const int64_t row_bytes = numel * static_cast<int64_t>(c10::elementSize(dtype));
  auto* row = static_cast<uint8_t*>(values.mutable_data_ptr());
  std::vector<uint64_t> raw(dtype == info.dtype ? 0 : static_cast<size_t>(info.sample_bytes() + 7) / 8);
  for (int64_t sample : samples) {
    if (numel == 0) break;
    if (dtype == info.dtype) {
      source_->read(array, sample, row);
    } else {
      source_->read(array, sample, raw.data());
      convert(raw.data(), info.dtype, row, dtype, numel);
    }
    row += row_bytes;
  }
  check(array, samples, values);
  return values;
}

void BatchAssembler::check(size_t array, const std::vector<int64_t>& samples, const at::Tensor& values) const {
  const ArrayInfo& info = source_->arrays()[array];
  const auto limits = options_.limits.find(info.name);
  if (limits == options_.limits.end()) return;
  for (const auto& limit : limits->second) {
    const int64_t at = find_outside(values, limit, info.sample_shape);
    if (at < 0) continue;
    const int64_t sample = samples[static_cast<size_t>(at / info.sample_numel())];
    const int64_t element = at % info.sample_numel();
    throw UserError(
        ExitCode::kBadInput,
        fmt::format(
            "array '{}' of the data, sample {}{}: the value {} is out of range: the model takes 0 to {}{}; file: {}",
            info.name, sample, info.sample_shape.empty() ? "" : fmt::format(", element {}", element),
            values.flatten()[at].item<int64_t>(), limit.bound - 1,
            limit.ignored ? fmt::format(" (and {} for labels to ignore)", *limit.ignored) : "",
            source_->describe(array, sample)));
  }
}

}  // namespace dslaunch::runtime
