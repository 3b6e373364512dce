// One backward pass that reports failures in the same way as forward.
#pragma once
#include <ATen/core/Tensor.h>

namespace dslaunch::runtime {

// dslaunch errors pass through unchanged; an error from autograd or an operator becomes a UserError (65: the model
// cannot be trained this way; 69: out of memory).
void run_backward(const at::Tensor& loss);

}  // namespace dslaunch::runtime
