// Selects the operators of a model that our kernels compute, and the type in which the model runs. Plain data.
#pragma once
#include <c10/core/ScalarType.h>

namespace dslaunch::runtime {

struct GraphPassOptions {
  bool cross_entropy = true;  // including the cast of its logits to fp32, which is fused
  bool layer_norm = true;
  bool bias_gradient = true;  // of linear layers
  // Of parameters and activations. A half-precision type: traces that were exported in another follow it.
  at::ScalarType compute_dtype = at::kFloat;
};

}  // namespace dslaunch::runtime
