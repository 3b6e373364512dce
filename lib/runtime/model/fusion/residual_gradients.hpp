// Layer norms and regions that add the gradient of what goes past them.
#pragma once
#include <torch/csrc/jit/api/module.h>

namespace dslaunch::runtime::model::fusion {

// A residual stream feeds a layer norm and, later, an addition: autograd adds the two gradients in a kernel of its own.
// Where operators that make new tensors read the input of a dslaunch::layer_norm after it, they read it from
// dslaunch::layer_norm_and_input instead, whose backward gets both gradients. Regions (RMSNorm, other norms) hand their
// inputs on in the same way. Inputs that somebody writes to in place stay as they are, and so do readers that may hand
// their argument on: calls, lists, views, the results of the graph.
//
// In all forwards, whose calls it inlines; after regions were extracted, which contain norms with the additions before
// them. Returns the number of layer norms and regions.
int add_residual_gradients(const torch::jit::Module& model);

}  // namespace dslaunch::runtime::model::fusion
