// The function table that the CUDA module provides for this room. dsworker does not link CUDA, so the first
// CUDA tensor loads the module and its table.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dslaunch::runtime::model::layers {

// Statistics of a layer norm's rows, fp32 [rows].
struct RowStatistics {
  at::Tensor means, rstds;
};

// All functions enqueue on the current stream of the tensors' device and return. The caller has checked devices, dtypes
// (fp32, bf16 or fp16, the same for all tensors unless stated otherwise), shapes and that tensors are contiguous; of
// logits and their gradient each row is. A failed kernel launch throws Error.
struct LayerFunctions {
  // logits [rows, classes], labels int64 [rows] -> losses and log_sums fp32 [rows].
  void (*cross_entropy)(const at::Tensor& logits, const at::Tensor& labels, int64_t ignore_index,
                        const at::Tensor& losses, const at::Tensor& log_sums);
  // Of all rows: total and weight fp32, 0-dim: the mean or sum, and the factor of each row's loss in it, which depends
  // on the labels alone.
  void (*cross_entropy_total)(const at::Tensor& losses, const at::Tensor& labels, int64_t ignore_index, bool mean,
                              const at::Tensor& total, const at::Tensor& weight);
  // upstream: fp32, 0-dim; `gradient` has the sizes and strides of `logits`, or is `logits` itself.
  void (*cross_entropy_gradient)(const at::Tensor& logits, const at::Tensor& labels, int64_t ignore_index,
                                 const at::Tensor& log_sums, const at::Tensor& weight, const at::Tensor& upstream,
                                 const at::Tensor& gradient);
  // cross_entropy(), and in the place of the logits their gradient, for an upstream gradient of 1.
  void (*cross_entropy_to_gradient)(const at::Tensor& logits, const at::Tensor& labels, int64_t ignore_index,
                                    const at::Tensor& weight, const at::Tensor& losses, const at::Tensor& log_sums);
  // Whether the next two functions support this number of columns and the tensors' addresses.
  bool (*layer_norm_fits)(int64_t columns, at::TensorList tensors);
  // input and out [..., columns], weight and bias [columns].
  void (*layer_norm)(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, double eps,
                     const at::Tensor& out, const RowStatistics& statistics);
  // `residual`: like the input, or undefined; it is added to the input's gradient before that is rounded.
  void (*layer_norm_gradient)(const at::Tensor& upstream, const at::Tensor& residual, const at::Tensor& input,
                              const at::Tensor& weight, const RowStatistics& statistics,
                              const at::Tensor& input_gradient, const at::Tensor& weight_gradient,
                              const at::Tensor& bias_gradient);
  // values [rows, columns], neither 0 -> sums [columns].
  void (*column_sums)(const at::Tensor& values, const at::Tensor& sums);
  // Parts [rows, columns of the part], whose rows may lie apart -> joined [rows, columns] and column_sums() of it.
  // False, with nothing done: parts are too many, or not cut and aligned at 16 bytes.
  bool (*join_columns)(at::TensorList parts, const at::Tensor& joined, const at::Tensor& sums);
  // router.hpp. Whether the next functions support this many.
  bool (*expert_choice_fits)(int64_t experts, int64_t choices);
  // logits [..., experts] -> weights fp32 and experts int64 [..., choices].
  void (*expert_choice)(const at::Tensor& logits, bool normalizes, const at::Tensor& weights,
                        const at::Tensor& experts);
  // upstream: fp32, of the weights; gradient: like the logits.
  void (*expert_choice_gradient)(const at::Tensor& logits, bool normalizes, const at::Tensor& experts,
                                 const at::Tensor& upstream, const at::Tensor& gradient);
  // experts.hpp. Whether the next function supports this many.
  bool (*expert_order_fits)(int64_t entries, int64_t num_experts);
  // experts int64 [entries] -> entry_of_row and row_of_entry int32 [entries], ends int32 [experts].
  void (*expert_order)(const at::Tensor& experts, const at::Tensor& entry_of_row, const at::Tensor& row_of_entry,
                       const at::Tensor& ends);
  // Whether the next functions support matrices with these columns at these addresses, and this many choices.
  bool (*expert_rows_fit)(int64_t choices, at::TensorList matrices);
  // tokens [tokens, columns] -> rows [tokens * choices, columns].
  void (*expert_rows)(const at::Tensor& tokens, const at::Tensor& row_of_entry, int64_t choices,
                      const at::Tensor& rows);
  // weights: [tokens * choices], fp32 or of the rows' type; undefined: all are 1.
  void (*expert_sum)(const at::Tensor& rows, const at::Tensor& weights, const at::Tensor& row_of_entry, int64_t choices,
                     const at::Tensor& out);
  void (*expert_sum_gradient)(const at::Tensor& upstream, const at::Tensor& rows, const at::Tensor& weights,
                              const at::Tensor& row_of_entry, int64_t choices, const at::Tensor& row_gradients,
                              const at::Tensor& weight_gradients);
};

// The element types that the kernels support.
inline bool is_kernel_type(at::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

}  // namespace dslaunch::runtime::model::layers
