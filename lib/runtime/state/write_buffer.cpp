#include "runtime/state/write_buffer.hpp"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>

namespace dslaunch::runtime {

void write_buffer(at::Tensor buffer, const at::Tensor& values) {
  const at::NoGradGuard no_grad;
  if (buffer.sizes() == values.sizes() && at::has_internal_overlap(buffer) == at::MemOverlap::No) {
    buffer.copy_(values);
  } else {
    buffer.set_(values.to(buffer.device(), /*non_blocking=*/false, /*copy=*/true));
  }
}

}  // namespace dslaunch::runtime
