// Layer normalisation whose backward reads the rows once for all three gradients, and what puts it into graphs
// (docs/kernels.md). Where our kernels do not apply, PyTorch's operator runs. Any thread; twice differentiable.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/ir/ir.h>

#include <optional>
#include <utility>

namespace dslaunch::runtime::model::layers {

// at::layer_norm. One kernel each for forward and backward over the last dims if all tensors have the same dtype and
// the normalised dims have 8 to 8192 elements, a multiple of 8.
at::Tensor fused_layer_norm(const at::Tensor& input, at::IntArrayRef normalized_shape,
                            const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias, double eps);

// The same, and the input, for what reads it besides. Where fused_layer_norm() has a kernel, and on the CPU, backward
// gets the gradients of both: the kernel adds the second one in fp32 and rounds the sum; on the CPU the gradients are
// rounded before they are added, as by autograd. The second result shares the input's memory; it must not be written
// to.
std::pair<at::Tensor, at::Tensor> fused_layer_norm_and_input(const at::Tensor& input, at::IntArrayRef normalized_shape,
                                                             const std::optional<at::Tensor>& weight,
                                                             const std::optional<at::Tensor>& bias, double eps);

// Replaces a node of aten::layer_norm, which it destroys.
void fuse_layer_norm(torch::jit::Node* node);

}  // namespace dslaunch::runtime::model::layers
