// Runs a region with PyTorch's operators, one by one: on CPUs, as the reference of the generated kernels, and for
// gradients of gradients, since autograd follows it.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "runtime/model/fusion/ir.hpp"

namespace dslaunch::runtime::model::fusion {

// `inputs`: of the region's dtypes; with `leading` they broadcast to [leading..., width]. Results: [leading..., width],
// or [width] where the rows are summed. Any thread.
std::vector<at::Tensor> run_reference(const Region& region, const std::vector<at::Tensor>& inputs,
                                      at::IntArrayRef leading);

}  // namespace dslaunch::runtime::model::fusion
