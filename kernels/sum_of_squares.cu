#include "kernels/sum_of_squares.h"

#include "kernels/block_sum.cuh"
#include "kernels/launch_shape.cuh"

namespace dslaunch::kernels {
namespace {

constexpr size_t kElementsPerThread = 16;
constexpr unsigned kMaxPartials = 2048;

__global__ void __launch_bounds__(kThreads)
    square_partials_kernel(const float* __restrict__ values, size_t count, const VectorSpan span,
                           double* __restrict__ partials) {
  double sum = 0.0;
  const auto* values4 = reinterpret_cast<const float4*>(values + span.head);
  for (size_t i = grid_thread(); i < span.num_vectors; i += grid_stride()) {
    const float4 v = values4[i];
    sum += (square(v.x) + square(v.y)) + (square(v.z) + square(v.w));
  }
  const size_t num_outside = count - 4 * span.num_vectors;
  for (size_t k = grid_thread(); k < num_outside; k += grid_stride()) sum += square(values[outside(span, k)]);
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

cudaError_t launch_square_partials(const float* values, size_t count, double* partials, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const void* const pointers[] = {values};
  const VectorSpan span = vector_span(count, pointers, 1);
  const auto blocks = static_cast<unsigned>(num_square_partials(count));
  square_partials_kernel<<<blocks, kThreads, 0, stream>>>(values, count, span, partials);
  return cudaGetLastError();
}

cudaError_t launch_sum_partials(const double* partials, size_t count, double* sum, cudaStream_t stream) {
  sum_partials_kernel<<<1, kThreads, 0, stream>>>(partials, count, sum);
  return cudaGetLastError();
}

}  // namespace dslaunch::kernels
