// Adds a micro batch's gradient to the fp32 sum of an optimizer step. Host: at once; CUDA: on the current stream.
#pragma once
#include <ATen/core/Tensor.h>

namespace dslaunch::runtime::optim {

// sum += gradient, in fp32. `sum` is fp32, `gradient` fp32, bf16 or fp16; both contiguous, of one length and device.
void accumulate_gradient(const at::Tensor& sum, const at::Tensor& gradient);

}  // namespace dslaunch::runtime::optim
