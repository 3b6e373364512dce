// Host memory for state that rests there. Mapped, not allocated, so that its size is what was asked for, large pages
// are used where the system has them, and it goes back to the system with the tensor. Any thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dslaunch::runtime::offload {

// Zeros; 1-D, 4 KiB aligned. Pages are taken when they are first written. Throws UserError 69 when the system refuses.
at::Tensor map_host_memory(int64_t numel, at::ScalarType dtype);
// The same, page-locked: the copy engine of `device` reads and writes it while the host goes on. All pages are taken
// now. Throws UserError 69 with the number of bytes and the reason of the driver or the system. On CPU ranks as above.
at::Tensor map_page_locked_memory(int64_t numel, at::ScalarType dtype, at::Device device);
// Page-locked, or ordinary memory after one warning: for buffers that are allocated when steps are already running.
at::Tensor page_locked_if_possible(int64_t numel, at::ScalarType dtype, at::Device device);

// Throws UserError 69, with the numbers, unless the host has memory for what its ranks together will keep there.
struct HostMemoryNeed {
  int64_t bytes_of_rank = 0;
  int ranks_of_host = 1;
};
void require_host_memory(const HostMemoryNeed& need, int64_t available_bytes);

}  // namespace dslaunch::runtime::offload
