#include "kernels/sum_of_squares.h"

#include <algorithm>

#include "kernels/block_sum.cuh"
#include "kernels/eight_elements.cuh"
#include "kernels/launch_shape.cuh"
#include "kernels/with_type.cuh"

namespace dslaunch::kernels {
namespace {

constexpr size_t kElementsPerThread = 16;
constexpr unsigned kMaxPartials = 2048;

__device__ double squares(float a, float b, float c, float d) {
  return (square(a) + square(b)) + (square(c) + square(d));
}

template <ElementType kType>
__device__ double squares_of_bytes(const uint4& v) {
  if constexpr (kType == ElementType::kFloat32) {
    return squares(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
  } else {
    return squares(float_of<kType>(v.x), float_of<kType>(v.x >> 16), float_of<kType>(v.y), float_of<kType>(v.y >> 16)) +
           squares(float_of<kType>(v.z), float_of<kType>(v.z >> 16), float_of<kType>(v.w), float_of<kType>(v.w >> 16));
  }
}

// `head`: elements before the first 16-byte boundary.
template <ElementType kType>
__global__ void __launch_bounds__(kThreads)
    square_partials_kernel(const void* __restrict__ values, size_t count, size_t head, double* __restrict__ partials) {
  constexpr size_t kPerVector = 16 / kBytesOf<kType>;
  const auto* vectors = reinterpret_cast<const uint4*>(static_cast<const char*>(values) + head * kBytesOf<kType>);
  const size_t num_vectors = (count - head) / kPerVector;
  double sum = 0.0;
  for (size_t i = grid_thread(); i < num_vectors; i += grid_stride()) sum += squares_of_bytes<kType>(vectors[i]);
  const size_t num_outside = count - kPerVector * num_vectors;
  for (size_t k = grid_thread(); k < num_outside; k += grid_stride()) {
    sum += square(load_element<kType>(values, k < head ? k : k + kPerVector * num_vectors));
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    sum_partials_kernel(const double* __restrict__ partials, size_t count, double* __restrict__ result) {
  double sum = 0.0;
  for (size_t i = threadIdx.x; i < count; i += kThreads) sum += partials[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *result = sum;
}

}  // namespace

size_t num_square_partials(size_t count) {
  return count == 0 ? 0 : num_blocks(count, kElementsPerThread, kMaxPartials);
}

cudaError_t launch_square_partials(const void* values, ElementType type, size_t count, double* partials,
                                   cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(num_square_partials(count));
  const size_t bytes_before = (16 - reinterpret_cast<uintptr_t>(values) % 16) % 16;
  return with_type(type, [&](auto chosen) {
    const size_t head = std::min(count, bytes_before / kBytesOf<chosen>);
    square_partials_kernel<chosen><<<blocks, kThreads, 0, stream>>>(values, count, head, partials);
    return cudaGetLastError();
  });
}

cudaError_t launch_sum_partials(const double* partials, size_t count, double* sum, cudaStream_t stream) {
  sum_partials_kernel<<<1, kThreads, 0, stream>>>(partials, count, sum);
  return cudaGetLastError();
}

}  // namespace dslaunch::kernels
