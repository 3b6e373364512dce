// PyTorch operators that our kernels compute on GPUs with less memory traffic (docs/kernels.md). Each returns the
// result of the PyTorch operator of that name, except for the order of additions and intermediate rounding; where a
// kernel does not apply (CPU, other dtypes, autocast), the PyTorch operator runs. Any thread; twice differentiable.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <cstdint>
#include <optional>

namespace dslaunch::runtime::model::fused {

// at::cross_entropy_loss; with `in_float` of the logits in fp32, without copying them. One kernel each for forward and
// backward for logits [rows, classes] in fp32 (with `in_float` also bf16 and fp16) and labels int64 [rows], with mean
// or sum, without weights and label smoothing.
at::Tensor fused_cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                               const std::optional<at::Tensor>& weight, int64_t reduction, int64_t ignore_index,
                               double label_smoothing, bool in_float);

// at::layer_norm. One kernel each for forward and backward over the last dims if all tensors have the same dtype and
// the normalised dims have 8 to 8192 elements, a multiple of 8.
at::Tensor fused_layer_norm(const at::Tensor& input, at::IntArrayRef normalized_shape,
                            const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias, double eps);

// at::linear; the gradient of its bias takes two kernels. Used if both weight and bias are trained. Defers its weight
// gradient as the next three do.
at::Tensor fused_linear(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias);

// at::linear, at::matmul and at::addmm without kernels of ours. If the weight is a unit's parameter itself (not a view
// of it, not a cast one) and the backward defers weight gradients (runtime/state/deferred_gradients.hpp), the product
// for the weight's gradient is computed later; the input and the output gradient are kept until then.
at::Tensor deferring_linear(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias);
at::Tensor deferring_matmul(const at::Tensor& input, const at::Tensor& weight);
at::Tensor deferring_addmm(const at::Tensor& bias, const at::Tensor& input, const at::Tensor& weight,
                           const at::Scalar& beta, const at::Scalar& alpha);

}  // namespace dslaunch::runtime::model::fused
