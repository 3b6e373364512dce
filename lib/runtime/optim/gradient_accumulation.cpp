#include "runtime/optim/gradient_accumulation.hpp"

#include <ATen/ATen.h>

#include "base/error.hpp"
#include "runtime/optim/device_functions.hpp"

namespace dslaunch::runtime::optim {

void accumulate_gradient(const at::Tensor& sum, const at::Tensor& gradient) {
  const auto type = gradient.scalar_type();
  DSL_CHECK(sum.scalar_type() == at::kFloat, "gradients add up in fp32");
  DSL_CHECK(type == at::kFloat || type == at::kBFloat16 || type == at::kHalf, "a gradient is fp32, bf16 or fp16");
  DSL_CHECK(sum.numel() == gradient.numel() && sum.device() == gradient.device(),
            "a gradient and its sum differ in length or device");
  DSL_CHECK(sum.is_contiguous() && gradient.is_contiguous(), "a gradient and its sum must be contiguous");
  if (sum.numel() == 0) return;
  if (sum.is_cuda()) return device_functions().accumulate(sum, gradient);
  sum.view(-1).add_(gradient.view(-1));
}

}  // namespace dslaunch::runtime::optim
