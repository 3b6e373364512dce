// The number of blocks for a kernel over `count` elements, and the range for 16-byte accesses. Host and device.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace dslaunch::kernels {

constexpr int kThreads = 256;

// Enough blocks to cover the elements once, and at most enough to keep any device busy; threads stride over the rest. A
// function of the sizes alone.
inline unsigned num_blocks(size_t count, size_t elements_per_thread, unsigned max_blocks = 8192) {
  const size_t per_block = kThreads * elements_per_thread;
  const size_t blocks = (count + per_block - 1) / per_block;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks > max_blocks ? max_blocks : blocks);
}

// fp32 elements before the first 16-byte boundary; the address must be a multiple of 4.
inline size_t elements_to_boundary(const void* pointer) {
  return (16 - reinterpret_cast<uintptr_t>(pointer) % 16) % 16 / sizeof(float);
}

// The range where a kernel over several fp32 arrays may use 16-byte accesses: [head, head + 4 * num_vectors). Without a
// common alignment num_vectors is 0 and every element is accessed separately.
struct VectorSpan {
  size_t head = 0;
  size_t num_vectors = 0;
};

inline VectorSpan vector_span(size_t count, const void* const* pointers, int num_pointers) {
  const size_t head = elements_to_boundary(pointers[0]);
  for (int i = 1; i < num_pointers; ++i) {
    if (elements_to_boundary(pointers[i]) != head) return {count, 0};
  }
  if (head >= count) return {count, 0};
  return {head, (count - head) / 4};
}

// The thread's index in the grid, and the grid's number of threads.
__device__ inline size_t grid_thread() {
  return static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline size_t grid_stride() {
  return static_cast<size_t>(gridDim.x) * blockDim.x;
}

// The index of the k-th element outside the span: first those before it, then those after it.
__device__ inline size_t outside(const VectorSpan& span, size_t k) {
  return k < span.head ? k : k + 4 * span.num_vectors;
}

}  // namespace dslaunch::kernels
