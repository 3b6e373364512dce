// Host memory for copies to and from a device. Any thread.
#pragma once
#include <ATen/core/Tensor.h>

namespace dslaunch::runtime {

// Pinned memory: copies run asynchronously to the host. If the system refuses to pin, ordinary memory is returned:
// copies are still correct but block the host. The first refusal in a process logs a warning, and the process does not
// request that many pinned bytes, or more, again.
at::Tensor pinned_if_possible(at::IntArrayRef shape, at::ScalarType dtype);
at::Tensor pinned_if_possible(at::IntArrayRef shape, at::IntArrayRef strides, at::ScalarType dtype);
// For copies to `device`: as above for a GPU, ordinary memory for the CPU.
at::Tensor host_memory_for(at::Device device, at::IntArrayRef shape, at::ScalarType dtype);

}  // namespace dslaunch::runtime
