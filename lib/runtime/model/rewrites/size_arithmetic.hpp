// Arithmetic on sizes that goes through tensors becomes arithmetic on integers. A trace stores `x.shape[-1] // 2` as a
// 0-dim tensor on the CPU, and the number 2 as another, which moves to the run's device: reading the result back waits
// for the device, and ends the capture of a CUDA graph.
#pragma once
#include <torch/csrc/jit/api/module.h>

namespace dslaunch::runtime::model::rewrites {

// Replaces reads of such tensors (aten::Int, aten::item and others) by the integers that they were computed from, and
// removes the tensors that nothing else uses. Results stay the same. Leaves alone what an operator may write to, and
// what passes through a call or a container.
void rewrite_size_arithmetic(const torch::jit::Module& model);

}  // namespace dslaunch::runtime::model::rewrites
