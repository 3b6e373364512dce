// Which operators of a model our kernels compute. Plain data.
#pragma once

namespace dslaunch::runtime {

struct GraphPassOptions {
  bool cross_entropy = true;  // and the cast of its logits to fp32, which becomes part of it
  bool layer_norm = true;
  bool bias_gradient = true;  // of linear layers
};

}  // namespace dslaunch::runtime
