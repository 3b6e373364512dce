// Host memory for copies from and to a device. Any thread.
#pragma once
#include <ATen/core/Tensor.h>

namespace dslaunch::runtime {

// Pinned: the copies run beside the host. Where the system refuses that, it is ordinary memory, in which they are as
// right and make the host wait; the first time in a process a warning says so, and the system is not asked again for as
// much.
at::Tensor pinned_if_possible(at::IntArrayRef shape, at::ScalarType dtype);
at::Tensor pinned_if_possible(at::IntArrayRef shape, at::IntArrayRef strides, at::ScalarType dtype);
// For copies to `device`: the same for a GPU, ordinary memory for the CPU.
at::Tensor host_memory_for(at::Device device, at::IntArrayRef shape, at::ScalarType dtype);

}  // namespace dslaunch::runtime
