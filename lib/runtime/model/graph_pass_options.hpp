// Selects the operators of a model that our kernels compute. Plain data.
#pragma once

namespace dslaunch::runtime {

struct GraphPassOptions {
  bool cross_entropy = true;  // including the cast of its logits to fp32, which is fused
  bool layer_norm = true;
  bool bias_gradient = true;  // of linear layers
};

}  // namespace dslaunch::runtime
