// One backward pass, whose failures are told as those of forward are.
#pragma once
#include <ATen/core/Tensor.h>

namespace dslaunch::runtime {

// Errors of ours pass; what autograd or an operator has to say becomes a UserError (65: the model cannot be trained
// this way; 69: out of memory).
void run_backward(const at::Tensor& loss);

}  // namespace dslaunch::runtime
