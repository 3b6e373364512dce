#include "runtime/data/batch_assembly.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/data/row_conversion.hpp"
#include "runtime/state/pinned_memory.hpp"

namespace dslaunch::runtime {
namespace {

bool is_normalized(const Batch& batch, size_t input) {
  return std::any_of(batch.pictures.begin(), batch.pictures.end(), [input](const PictureWork& pictures) {
    return pictures.input == input && !pictures.transform->mean.empty();
  });
}

int64_t count_tokens(const Batch& batch) {
  for (size_t i = 0; i < batch.inputs.size(); ++i) {
    const at::Tensor& input = batch.inputs[i];
    const bool is_integer = c10::isIntegralType(input.scalar_type(), false) && !is_normalized(batch, i);
    if (is_integer && input.dim() >= 2) return input.numel();
  }
  return 0;
}

// Page-locked with `pin`, if possible.
at::Tensor host_tensor(const std::vector<int64_t>& shape, at::ScalarType dtype, bool pin) {
  return pin ? pinned_if_possible(shape, dtype) : at::empty(shape, dtype);
}

template <class T>
int64_t count_ignored(const at::Tensor& labels) {
  const T* values = labels.const_data_ptr<T>();
  return std::count(values, values + labels.numel(), static_cast<T>(kIgnoredLabel));
}

// The number of labels that a loss averages over.
int64_t count_labels(const at::Tensor& labels, bool has_ignored, bool ignores_first) {
  if (ignores_first && labels.dim() >= 2 && labels.size(-1) > 0) {
    return count_labels(labels.narrow(-1, 1, labels.size(-1) - 1).contiguous(), has_ignored, false);
  }
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

// The first `length` along a dim, contiguous. Without ATen's copy, which would start a pool of threads in each worker.
at::Tensor beginning_of(const at::Tensor& values, int64_t dim, int64_t length, bool pin) {
  std::vector<int64_t> shape = values.sizes().vec();
  shape[static_cast<size_t>(dim)] = length;
  at::Tensor out = host_tensor(shape, values.scalar_type(), pin);
  if (out.numel() == 0) return out;
  const auto element = static_cast<int64_t>(values.element_size());
  const int64_t from_bytes = values.stride(dim) * values.size(dim) * element,
                to_bytes = out.stride(dim) * length * element;
  const auto* from = static_cast<const uint8_t*>(values.const_data_ptr());
  auto* to = static_cast<uint8_t*>(out.mutable_data_ptr());
  for (int64_t left = out.numel() * element; left > 0; left -= to_bytes, from += from_bytes, to += to_bytes) {
    std::memcpy(to, from, static_cast<size_t>(to_bytes));
  }
  return out;
}

}  // namespace

BatchAssembler::BatchAssembler(std::shared_ptr<const SampleSource> source, ArraySelection selection,
                               AssemblyOptions options)
    : source_(std::move(source)), selection_(std::move(selection)), options_(std::move(options)) {}

Batch BatchAssembler::assemble(const MicroBatchPlan& plan) const {
  for (const auto* arrays : {&selection_.inputs, &selection_.labels}) {
    for (size_t array : *arrays) source_->read_ahead(array, plan.samples);
  }
  Batch batch;
  batch.num_samples = plan.num_samples;
  batch.first = plan.first;
  batch.after = plan.after;
  for (size_t array : selection_.inputs) batch.inputs.push_back(read(array, plan, options_.compute_dtype));
  for (size_t array : selection_.labels) batch.labels.push_back(read(array, plan, options_.label_dtype));
  batch.pictures = plan_pictures(plan);
  if (plan.num_samples == 0) return batch;  // a padding batch
  batch.num_tokens = count_tokens(batch);
  for (const at::Tensor& labels : batch.labels) {
    batch.num_labels += count_labels(labels, options_.has_ignored_labels, options_.ignores_first_label);
  }
  return batch;
}

std::vector<PictureWork> BatchAssembler::plan_pictures(const MicroBatchPlan& plan) const {
  std::vector<PictureWork> out;
  for (size_t i = 0; i < selection_.inputs.size(); ++i) {
    const auto transform = options_.pictures.find(source_->arrays()[selection_.inputs[i]].name);
    if (transform == options_.pictures.end()) continue;
    at::Tensor views = picture_views(*transform->second, plan);
    if (views.defined() && options_.pin) {
      views = host_tensor(views.sizes().vec(), views.scalar_type(), options_.pin).copy_(views);
    }
    out.push_back({i, transform->second, std::move(views)});
  }
  return out;
}

at::Tensor BatchAssembler::read(size_t array, const MicroBatchPlan& plan, at::ScalarType float_dtype) const {
  at::Tensor values = gather(array, plan.samples, float_dtype);
  return plan.sequence_length == 0 ? values : cut(array, plan.sequence_length, std::move(values));
}

// The beginning of the sequence.
at::Tensor BatchAssembler::cut(size_t array, int64_t length, at::Tensor values) const {
  const auto dims = options_.sequence_dims.find(source_->arrays()[array].name);
  if (dims == options_.sequence_dims.end()) return values;
  for (const int64_t dim : dims->second) {
    if (values.size(dim + 1) > length) values = beginning_of(values, dim + 1, length, options_.pin);
  }
  return values;
}

at::Tensor BatchAssembler::gather(size_t array, const std::vector<int64_t>& samples, at::ScalarType float_dtype) const {
  const ArrayInfo& info = source_->arrays()[array];
  std::vector<int64_t> shape{static_cast<int64_t>(samples.size())};
  shape.insert(shape.end(), info.sample_shape.begin(), info.sample_shape.end());
  const at::ScalarType dtype = batch_dtype(info.dtype, float_dtype, options_.indices.contains(info.name));
  at::Tensor values = host_tensor(shape, dtype, options_.pin);
  if (info.sample_numel() > 0) read_rows(array, samples, values);
  check(array, samples, values);
  return values;
}

void BatchAssembler::read_rows(size_t array, const std::vector<int64_t>& samples, at::Tensor& values) const {
  const ArrayInfo& info = source_->arrays()[array];
  const int64_t numel = info.sample_numel();
  const at::ScalarType dtype = values.scalar_type();
  const bool converts = dtype != info.dtype;
  std::vector<uint64_t> as_in_file(converts ? static_cast<size_t>(info.sample_bytes() + 7) / 8 : 0);  // aligned
  auto* row = static_cast<uint8_t*>(values.mutable_data_ptr());
  for (int64_t sample : samples) {
    if (converts) {
      source_->read(array, sample, as_in_file.data());
      convert_row(as_in_file.data(), info.dtype, row, dtype, numel);
    } else {
      source_->read(array, sample, row);
    }
    row += numel * static_cast<int64_t>(c10::elementSize(dtype));
  }
}

void BatchAssembler::check(size_t array, const std::vector<int64_t>& samples, const at::Tensor& values) const {
  const ArrayInfo& info = source_->arrays()[array];
  const auto limits = options_.limits.find(info.name);
  if (limits == options_.limits.end()) return;
  for (const auto& limit : limits->second) {
    const auto outside = first_outside(values, limit);
    if (!outside) continue;
    const int64_t sample = samples[static_cast<size_t>(*outside / info.sample_numel())];
    const int64_t element = *outside % info.sample_numel();
    throw UserError(
        ExitCode::kBadInput,
        fmt::format(
            "array '{}' of the data, sample {}{}: the value {} is out of range: the model accepts 0 to {}{}; file: {}",
            info.name, sample, info.sample_shape.empty() ? "" : fmt::format(", element {}", element),
            values.flatten()[*outside].item<int64_t>(), limit.bound - 1,
            limit.ignored ? fmt::format(" (and {} for labels to ignore)", *limit.ignored) : "",
            source_->describe(array, sample)));
  }
}

}  // namespace dslaunch::runtime
