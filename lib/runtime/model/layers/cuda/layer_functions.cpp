// The CUDA module's function table for lib/runtime/model: unpacks tensors into pointers and sizes and launches the
// kernels. Part of the CUDA module, never of dsworker itself.
#include "runtime/model/layers/layer_functions.hpp"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>

#include <limits>
#include <vector>

#include "kernels/column_sums.h"
#include "kernels/cross_entropy.h"
#include "kernels/expert_choice.h"
#include "kernels/expert_rows.h"
#include "kernels/layer_norm.h"
#include "runtime/device/cuda/function_tables.hpp"
#include "runtime/device/cuda/launch.hpp"

namespace dslaunch::runtime::model::layers {
namespace {

kernels::CrossEntropyArguments arguments_of(const at::Tensor& logits, const at::Tensor& labels, int64_t ignore_index) {
  kernels::CrossEntropyArguments out;
  out.logits = logits.const_data_ptr();
  out.type = element_type(logits.scalar_type());
  out.rows = static_cast<size_t>(logits.size(0));
  out.classes = static_cast<size_t>(logits.size(1));
  out.stride = static_cast<size_t>(logits.stride(0));
  out.labels = labels.const_data_ptr<int64_t>();
  out.ignore_index = ignore_index;
  return out;
}

void cross_entropy_on_device(const at::Tensor& logits, const at::Tensor& labels, int64_t ignore_index,
                             const at::Tensor& losses, const at::Tensor& log_sums) {
  const c10::cuda::CUDAGuard guard(logits.device());
  check_launch(
      kernels::launch_cross_entropy(arguments_of(logits, labels, ignore_index), losses.mutable_data_ptr<float>(),
                                    log_sums.mutable_data_ptr<float>(), stream_of(logits)),
      "cross entropy", logits);
}

void cross_entropy_total_on_device(const at::Tensor& losses, const at::Tensor& labels, int64_t ignore_index, bool mean,
                                   const at::Tensor& total, const at::Tensor& weight) {
  const c10::cuda::CUDAGuard guard(losses.device());
  kernels::CrossEntropyArguments arguments;  // the logits play no part
  arguments.rows = static_cast<size_t>(losses.numel());
  arguments.labels = labels.const_data_ptr<int64_t>();
  arguments.ignore_index = ignore_index;
  check_launch(kernels::launch_cross_entropy_total(arguments, losses.const_data_ptr<float>(), mean,
                                                   total.mutable_data_ptr<float>(), weight.mutable_data_ptr<float>(),
                                                   stream_of(losses)),
               "cross entropy total", losses);
}

void cross_entropy_gradient_on_device(const at::Tensor& logits, const at::Tensor& labels, int64_t ignore_index,
                                      const at::Tensor& log_sums, const at::Tensor& weight, const at::Tensor& upstream,
                                      const at::Tensor& gradient) {
  const c10::cuda::CUDAGuard guard(logits.device());
  check_launch(kernels::launch_cross_entropy_gradient(arguments_of(logits, labels, ignore_index),
                                                      log_sums.const_data_ptr<float>(), weight.const_data_ptr<float>(),
                                                      upstream.const_data_ptr<float>(), gradient.mutable_data_ptr(),
                                                      stream_of(logits)),
               "cross entropy gradient", logits);
}

void cross_entropy_to_gradient_on_device(const at::Tensor& logits, const at::Tensor& labels, int64_t ignore_index,
                                         const at::Tensor& weight, const at::Tensor& losses,
                                         const at::Tensor& log_sums) {
  const c10::cuda::CUDAGuard guard(logits.device());
  check_launch(
      kernels::launch_cross_entropy_to_gradient(
          arguments_of(logits, labels, ignore_index), weight.const_data_ptr<float>(), losses.mutable_data_ptr<float>(),
          log_sums.mutable_data_ptr<float>(), logits.mutable_data_ptr(), stream_of(logits)),
      "cross entropy and its gradient", logits);
}

bool layer_norm_fits_on_device(int64_t columns, at::TensorList tensors) {
  std::vector<const void*> arrays;
  for (const auto& tensor : tensors) arrays.push_back(tensor.const_data_ptr());
  return kernels::layer_norm_fits(static_cast<size_t>(columns), arrays.data(), static_cast<int>(arrays.size()));
}

kernels::LayerNormArguments arguments_of(const at::Tensor& input, const at::Tensor& weight,
                                         const RowStatistics& statistics) {
  kernels::LayerNormArguments out;
  out.input = input.const_data_ptr();
  out.weight = weight.const_data_ptr();
  out.type = element_type(input.scalar_type());
  out.columns = static_cast<size_t>(weight.numel());
  out.rows = static_cast<size_t>(input.numel()) / out.columns;
  out.means = statistics.means.mutable_data_ptr<float>();
  out.rstds = statistics.rstds.mutable_data_ptr<float>();
  return out;
}

void layer_norm_on_device(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, double eps,
                          const at::Tensor& out, const RowStatistics& statistics) {
  const c10::cuda::CUDAGuard guard(input.device());
  auto arguments = arguments_of(input, weight, statistics);
  arguments.bias = bias.const_data_ptr();
  arguments.eps = static_cast<float>(eps);
  check_launch(kernels::launch_layer_norm(arguments, out.mutable_data_ptr(), stream_of(input)), "layer norm", input);
}

// [number][columns], fp32.
at::Tensor partial_sums(size_t number, const at::Tensor& like) {
  return at::empty({static_cast<int64_t>(number), like.numel()}, like.options().dtype(at::kFloat));
}

void add_up(const at::Tensor& partials, const at::Tensor& sums) {
  check_launch(kernels::launch_column_totals(partials.const_data_ptr<float>(), static_cast<size_t>(partials.size(0)),
                                             static_cast<size_t>(partials.size(1)), sums.mutable_data_ptr(),
                                             element_type(sums.scalar_type()), stream_of(sums)),
               "column totals", partials);
}

void layer_norm_gradient_on_device(const at::Tensor& upstream, const at::Tensor& residual, const at::Tensor& input,
                                   const at::Tensor& weight, const RowStatistics& statistics,
                                   const at::Tensor& input_gradient, const at::Tensor& weight_gradient,
                                   const at::Tensor& bias_gradient) {
  const c10::cuda::CUDAGuard guard(input.device());
  const auto arguments = arguments_of(input, weight, statistics);
  const size_t number = kernels::num_layer_norm_partials(arguments.rows, arguments.columns);
  const at::Tensor weight_partials = partial_sums(number, weight), bias_partials = partial_sums(number, weight);
  const kernels::LayerNormGradient to{upstream.const_data_ptr(),
                                      residual.defined() ? residual.const_data_ptr() : nullptr,
                                      input_gradient.mutable_data_ptr(), weight_partials.mutable_data_ptr<float>(),
                                      bias_partials.mutable_data_ptr<float>()};
  check_launch(kernels::launch_layer_norm_gradient(arguments, to, stream_of(input)), "layer norm gradient", input);
  add_up(weight_partials, weight_gradient);
  add_up(bias_partials, bias_gradient);
}

void column_sums_on_device(const at::Tensor& values, const at::Tensor& sums) {
  const c10::cuda::CUDAGuard guard(values.device());
  const auto rows = static_cast<size_t>(values.size(0)), columns = static_cast<size_t>(values.size(1));
  const at::Tensor partials = partial_sums(kernels::num_column_partials(rows, columns), sums);
  check_launch(kernels::launch_column_partials(values.const_data_ptr(), element_type(values.scalar_type()), rows,
                                               columns, partials.mutable_data_ptr<float>(), stream_of(values)),
               "column sums", values);
  add_up(partials, sums);
}

bool join_columns_on_device(at::TensorList parts, const at::Tensor& joined, const at::Tensor& sums) {
  kernels::ColumnParts from;
  if (parts.size() > static_cast<size_t>(kernels::ColumnParts::kMax)) return false;
  size_t end = 0;
  for (const auto& part : parts) {
    if (part.stride(1) != 1) return false;
    end += static_cast<size_t>(part.size(1));
    from.values[from.num_parts] = part.const_data_ptr();
    from.strides[from.num_parts] = static_cast<size_t>(part.stride(0));
    from.ends[from.num_parts++] = end;
  }
  const auto type = element_type(joined.scalar_type());
  if (!kernels::joined_columns_fit(from, type)) return false;
  const c10::cuda::CUDAGuard guard(joined.device());
  const auto rows = static_cast<size_t>(joined.size(0));
  const at::Tensor partials = partial_sums(kernels::num_column_partials(rows, end), sums);
  check_launch(kernels::launch_joined_partials(from, type, rows, joined.mutable_data_ptr(),
                                               partials.mutable_data_ptr<float>(), stream_of(joined)),
               "joined columns and their sums", joined);
  add_up(partials, sums);
  return true;
}

bool expert_choice_fits_on_device(int64_t experts, int64_t choices) {
  return kernels::expert_choice_fits(static_cast<size_t>(experts), static_cast<size_t>(choices));
}

kernels::ExpertChoice arguments_of(const at::Tensor& logits, bool normalizes, const at::Tensor& experts) {
  kernels::ExpertChoice out;
  out.logits = logits.const_data_ptr();
  out.type = element_type(logits.scalar_type());
  out.experts = static_cast<size_t>(logits.size(-1));
  out.tokens = static_cast<size_t>(logits.numel()) / out.experts;
  out.choices = static_cast<size_t>(experts.size(-1));
  out.normalizes = normalizes;
  return out;
}

void expert_choice_on_device(const at::Tensor& logits, bool normalizes, const at::Tensor& weights,
                             const at::Tensor& experts) {
  const c10::cuda::CUDAGuard guard(logits.device());
  check_launch(
      kernels::launch_expert_choice(arguments_of(logits, normalizes, experts), weights.mutable_data_ptr<float>(),
                                    experts.mutable_data_ptr<int64_t>(), stream_of(logits)),
      "choice of experts", logits);
}

void expert_choice_gradient_on_device(const at::Tensor& logits, bool normalizes, const at::Tensor& experts,
                                      const at::Tensor& upstream, const at::Tensor& gradient) {
  const c10::cuda::CUDAGuard guard(logits.device());
  check_launch(kernels::launch_expert_choice_gradient(
                   arguments_of(logits, normalizes, experts), experts.const_data_ptr<int64_t>(),
                   upstream.const_data_ptr<float>(), gradient.mutable_data_ptr(), stream_of(logits)),
               "gradient of a choice of experts", logits);
}

bool expert_order_fits_on_device(int64_t entries, int64_t num_experts) {
  return entries <= std::numeric_limits<int32_t>::max() && num_experts > 0 &&
         static_cast<size_t>(num_experts) <= kernels::kMaxExperts;
}

void expert_order_on_device(const at::Tensor& experts, const at::Tensor& entry_of_row, const at::Tensor& row_of_entry,
                            const at::Tensor& ends) {
  const c10::cuda::CUDAGuard guard(experts.device());
  kernels::ExpertOrder order;
  order.experts = experts.const_data_ptr<int64_t>();
  order.entries = static_cast<size_t>(experts.numel());
  order.num_experts = static_cast<size_t>(ends.numel());
  const auto num_counts = static_cast<int64_t>(kernels::num_expert_counts(order.entries, order.num_experts));
  const at::Tensor counts = at::empty({num_counts}, ends.options());
  order.counts = counts.mutable_data_ptr<int32_t>();
  order.entry_of_row = entry_of_row.mutable_data_ptr<int32_t>();
  order.row_of_entry = row_of_entry.mutable_data_ptr<int32_t>();
  order.ends = ends.mutable_data_ptr<int32_t>();
  check_launch(kernels::launch_expert_order(order, stream_of(experts)), "order of experts", experts);
}

bool expert_rows_fit_on_device(int64_t choices, at::TensorList matrices) {
  std::vector<const void*> arrays;
  for (const auto& matrix : matrices) arrays.push_back(matrix.const_data_ptr());
  return kernels::expert_rows_fit(static_cast<size_t>(matrices[0].size(1)), static_cast<size_t>(choices), arrays.data(),
                                  static_cast<int>(arrays.size()));
}

kernels::ExpertRows arguments_of(const at::Tensor& matrix, const at::Tensor& weights, const at::Tensor& row_of_entry,
                                 int64_t choices) {
  kernels::ExpertRows out;
  out.type = element_type(matrix.scalar_type());
  out.choices = static_cast<size_t>(choices);
  out.tokens = static_cast<size_t>(row_of_entry.numel()) / out.choices;
  out.columns = static_cast<size_t>(matrix.size(1));
  out.row_of_entry = row_of_entry.const_data_ptr<int32_t>();
  if (weights.defined()) {
    out.weights = weights.const_data_ptr();
    out.weight_type = element_type(weights.scalar_type());
  }
  return out;
}

void expert_rows_on_device(const at::Tensor& tokens, const at::Tensor& row_of_entry, int64_t choices,
                           const at::Tensor& rows) {
  const c10::cuda::CUDAGuard guard(tokens.device());
  check_launch(kernels::launch_expert_rows(arguments_of(tokens, {}, row_of_entry, choices), tokens.const_data_ptr(),
                                           rows.mutable_data_ptr(), stream_of(tokens)),
               "rows of experts", tokens);
}

void expert_sum_on_device(const at::Tensor& rows, const at::Tensor& weights, const at::Tensor& row_of_entry,
                          int64_t choices, const at::Tensor& out) {
  const c10::cuda::CUDAGuard guard(rows.device());
  check_launch(kernels::launch_expert_sum(arguments_of(rows, weights, row_of_entry, choices), rows.const_data_ptr(),
                                          out.mutable_data_ptr(), stream_of(rows)),
               "sum of experts", rows);
}

void expert_sum_gradient_on_device(const at::Tensor& upstream, const at::Tensor& rows, const at::Tensor& weights,
                                   const at::Tensor& row_of_entry, int64_t choices, const at::Tensor& row_gradients,
                                   const at::Tensor& weight_gradients) {
  const c10::cuda::CUDAGuard guard(rows.device());
  check_launch(kernels::launch_expert_sum_gradient(
                   arguments_of(rows, weights, row_of_entry, choices), upstream.const_data_ptr(), rows.const_data_ptr(),
                   row_gradients.mutable_data_ptr(), weight_gradients.mutable_data_ptr(), stream_of(rows)),
               "gradient of a sum of experts", rows);
}

}  // namespace

const LayerFunctions kLayerFunctions{cross_entropy_on_device,
                                     cross_entropy_total_on_device,
                                     cross_entropy_gradient_on_device,
                                     cross_entropy_to_gradient_on_device,
                                     layer_norm_fits_on_device,
                                     layer_norm_on_device,
                                     layer_norm_gradient_on_device,
                                     column_sums_on_device,
                                     join_columns_on_device,
                                     expert_choice_fits_on_device,
                                     expert_choice_on_device,
                                     expert_choice_gradient_on_device,
                                     expert_order_fits_on_device,
                                     expert_order_on_device,
                                     expert_rows_fit_on_device,
                                     expert_rows_on_device,
                                     expert_sum_on_device,
                                     expert_sum_gradient_on_device};

}  // namespace dslaunch::runtime::model::layers
