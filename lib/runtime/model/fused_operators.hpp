// Operators of PyTorch's that our kernels compute on GPUs with less traffic over memory (docs/kernels.md). Each gives
// what the operator of that name gives, but for the order of additions and what was rounded in between; where a kernel
// does not fit (CPU, other types, autocast), it is that operator. Any thread; differentiable, twice as well.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace dslaunch::runtime {

// at::cross_entropy_loss; with `in_float` of the logits in fp32, of which no copy is made. One kernel each way for
// logits [rows, classes] in fp32 (with `in_float` in bf16 and fp16 too) and labels int64 [rows], a mean or a sum,
// without weights and smoothing.
at::Tensor fused_cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                               const std::optional<at::Tensor>& weight, int64_t reduction, int64_t ignore_index,
                               double label_smoothing, bool in_float);

// at::layer_norm. One kernel each way over the last dims where all tensors have one type and that has 8 to 8192
// elements, a multiple of 8.
at::Tensor fused_layer_norm(const at::Tensor& input, at::IntArrayRef normalized_shape,
                            const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias, double eps);

// at::linear, whose bias gets its gradient in two kernels. Where weight and bias are trained.
at::Tensor fused_linear(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias);

}  // namespace dslaunch::runtime
