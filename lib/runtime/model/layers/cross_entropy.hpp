// Cross entropy without copies of the logits, and what puts it into graphs (docs/kernels.md). Results are those of
// PyTorch's operator, except for the order of additions and intermediate rounding; where our kernels do not apply
// (other dtypes, autocast), PyTorch's operator runs. Any thread; twice differentiable.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <optional>

namespace dslaunch::runtime::model::layers {

inline constexpr char kCrossEntropyOperator[] = "dslaunch::cross_entropy";

// at::cross_entropy_loss; with `in_float` of the logits in fp32, without copying them. One kernel each for forward and
// backward for logits [rows, classes] in fp32 (with `in_float` also bf16 and fp16) and labels int64 [rows], with mean
// or sum, without weights and label smoothing.
at::Tensor fused_cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                               const std::optional<at::Tensor>& weight, int64_t reduction, int64_t ignore_index,
                               double label_smoothing, bool in_float);

// F.cross_entropy is a TorchScript function: inlining brings the cast before its call next to the operator in it.
void inline_cross_entropy(const torch::jit::Module& model);

// Replaces a node of aten::cross_entropy_loss, which it destroys.
void fuse_cross_entropy(torch::jit::Node* node);

// Models that compute in 16 bits cast their logits to fp32 before the loss: `F.cross_entropy(logits.view(-1,
// n).float(), labels)`. An operator that reads 16 bits directly does not need that copy. If the first input of `user`
// is a cast to fp32, possibly reshaped, replaces that input by the uncast tensor in the same shape and removes the
// cast. Returns false and changes nothing if there is no such cast, if other nodes need its elements too, or if a node
// in between may write to tensors.
bool remove_cast(torch::jit::Node* user);

// Whether a node between these, which follow one another in a block, may write to tensors.
bool may_write_between(const torch::jit::Node* first, const torch::jit::Node* last);

}  // namespace dslaunch::runtime::model::layers
