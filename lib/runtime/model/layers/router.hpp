// The router of a mixture of experts: which experts a token is sent to, with which weights; and what puts it into
// graphs (docs/kernels.md). On the CPU, and where the kernel does not apply, PyTorch's operators compute the same. Any
// thread; twice differentiable.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdint>

namespace dslaunch::runtime::model::layers {

struct ExpertChoice {
  at::Tensor weights;  // [..., choices], fp32, the largest first
  at::Tensor experts;  // int64, likewise
};

// Of logits [..., experts] the largest of their softmax in fp32; `normalizes`: divided by the sum of a token's.
ExpertChoice choose_experts(const at::Tensor& logits, int64_t choices, bool normalizes);

// softmax in fp32 and topk of the last dim, and the division by the sum, in place or not, where nothing else reads what
// lies between. Returns the number of routers changed.
int fuse_routers(const torch::jit::Module& model);

}  // namespace dslaunch::runtime::model::layers
