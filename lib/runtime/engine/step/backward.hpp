// A backward pass, at once or in two parts, that reports failures in the same way as forward.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "runtime/state/deferred_gradients.hpp"

namespace dslaunch::runtime::engine::step {

// Backward from `outputs` with their gradients; `gradients` may be empty when every output is a scalar: they are 1.
// dslaunch errors pass through unchanged; an error from autograd or an operator becomes a UserError (65: the model
// cannot be trained this way; 69: out of memory).
void run_backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients = {});

// Runs what a backward left, in its order, and drops each part with the memory that it kept; errors as above.
void run_weight_gradients(std::vector<DeferredGradients::Work> work);

}  // namespace dslaunch::runtime::engine::step
