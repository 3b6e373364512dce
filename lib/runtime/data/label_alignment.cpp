#include "runtime/data/label_alignment.hpp"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <numeric>

#include "runtime/data/batch_assembly.hpp"

namespace dslaunch::runtime {
namespace {

constexpr int64_t kMaxSamples = 8;

bool are_tokens(const ArrayInfo& inputs, const ArrayInfo& labels) {
  const auto is_integer = [](const ArrayInfo& info) { return c10::isIntegralType(info.dtype, /*includeBool=*/false); };
  return is_integer(inputs) && is_integer(labels) && inputs.sample_shape.size() == 1 &&
         inputs.sample_shape == labels.sample_shape;
}

}  // namespace

LabelAlignment find_label_alignment(const std::shared_ptr<const SampleSource>& source, size_t inputs, size_t labels) {
  const int64_t num_samples = source->num_samples();
  if (num_samples == SampleSource::kEndless || !are_tokens(source->arrays()[inputs], source->arrays()[labels])) {
    return LabelAlignment::kUnknown;
  }
  MicroBatchPlan plan;
  plan.samples.resize(static_cast<size_t>(std::min(kMaxSamples, num_samples)));
  std::iota(plan.samples.begin(), plan.samples.end(), 0);
  const Batch batch = BatchAssembler(source, {{inputs}, {labels}}, {}).assemble(plan);
  const at::Tensor tokens = batch.inputs[0].to(at::kLong), targets = batch.labels[0].to(at::kLong);
  const auto *token = tokens.const_data_ptr<int64_t>(), *target = targets.const_data_ptr<int64_t>();
  const int64_t length = source->arrays()[inputs].sample_shape[0];
  bool is_same = true, is_next = true;
  for (int64_t i = 0; i < tokens.numel(); ++i) {
    // The last label of a sample proves nothing: the token after its last input is not in the sample.
    if (i % length == length - 1 || target[i] == kIgnoredLabel) continue;
    is_same = is_same && target[i] == token[i];
    is_next = is_next && target[i] == token[i + 1];
  }
  if (is_same == is_next) return LabelAlignment::kUnknown;
  return is_same ? LabelAlignment::kSame : LabelAlignment::kNext;
}

}  // namespace dslaunch::runtime
