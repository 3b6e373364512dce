// The router of a mixture of experts: from a token's logits to the experts that it chooses and their weights, in one
// kernel, and the gradient in another. In fp32. See expert_choice.cu.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/element_type.h"

namespace dslaunch::kernels {

struct ExpertChoice {
  const void* logits = nullptr;  // [tokens, experts]
  ElementType type = ElementType::kFloat32;
  size_t tokens = 0, experts = 0, choices = 0;
  bool normalizes = false;  // a token's weights are divided by their sum
};

// Whether the kernels apply: at most 512 experts, and at most 32 choices, no more than there are experts.
bool expert_choice_fits(size_t experts, size_t choices);

// weights[token][choice]: the largest of the softmax of the token's logits, the largest first; of equal ones that of
// the lower number. indices: the experts', which exist also where logits are not numbers; a weight then is none,
// either.
cudaError_t launch_expert_choice(const ExpertChoice& a, float* weights, int64_t* indices, cudaStream_t stream);

// upstream [tokens, choices] -> gradient [tokens, experts], of the logits' type.
cudaError_t launch_expert_choice_gradient(const ExpertChoice& a, const int64_t* indices, const float* upstream,
                                          void* gradient, cudaStream_t stream);

}  // namespace dslaunch::kernels
