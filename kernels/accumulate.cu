#include "kernels/accumulate.h"

#include "kernels/launch_shape.cuh"
#include "kernels/low_precision.cuh"

namespace dslaunch::kernels {
namespace {

__device__ void add(float4& sum, float4 gradient, float scale) {
  sum.x = sum.x + scale * gradient.x;
  sum.y = sum.y + scale * gradient.y;
  sum.z = sum.z + scale * gradient.z;
  sum.w = sum.w + scale * gradient.w;
}

__global__ void __launch_bounds__(kThreads)
    accumulate_fp32_kernel(float* __restrict__ sum, const float* __restrict__ gradient, float scale, size_t count,
                           const VectorSpan span) {
  auto* sum4 = reinterpret_cast<float4*>(sum + span.head);
  const auto* gradient4 = reinterpret_cast<const float4*>(gradient + span.head);
  for (size_t i = grid_thread(); i < span.num_vectors; i += grid_stride()) {
    float4 s = sum4[i];
    add(s, __ldcs(gradient4 + i), scale);
    sum4[i] = s;
  }
  const size_t num_outside = count - 4 * span.num_vectors;
  for (size_t k = grid_thread(); k < num_outside; k += grid_stride()) {
    const size_t i = outside(span, k);
    sum[i] = sum[i] + scale * gradient[i];
  }
}

// Two elements of 16 bits in one word, the first in the lower half.
template <ElementType kType>
__device__ float2 unpack(uint32_t word) {
  return make_float2(from_low_precision_bits<kType>(static_cast<uint16_t>(word & 0xFFFFU)),
                     from_low_precision_bits<kType>(static_cast<uint16_t>(word >> 16)));
}

// Eight elements a thread: one 16-byte access to the gradient, two to the sum. `num_vectors` counts those; the elements
// before `head` and behind the vectors are handled one by one.
template <ElementType kType>
__global__ void __launch_bounds__(kThreads)
    accumulate_low_precision_kernel(float* __restrict__ sum, const uint16_t* __restrict__ gradient, float scale,
                                    size_t count, size_t head, size_t num_vectors) {
  auto* sum4 = reinterpret_cast<float4*>(sum + head);
  const auto* gradient8 = reinterpret_cast<const uint4*>(gradient + head);
  for (size_t i = grid_thread(); i < num_vectors; i += grid_stride()) {
    const uint4 words = __ldcs(gradient8 + i);
    float4 low = sum4[2 * i], high = sum4[2 * i + 1];
    const float2 a = unpack<kType>(words.x), b = unpack<kType>(words.y);
    const float2 c = unpack<kType>(words.z), d = unpack<kType>(words.w);
    add(low, make_float4(a.x, a.y, b.x, b.y), scale);
    add(high, make_float4(c.x, c.y, d.x, d.y), scale);
    sum4[2 * i] = low;
    sum4[2 * i + 1] = high;
  }
  const size_t num_outside = count - 8 * num_vectors;
  for (size_t k = grid_thread(); k < num_outside; k += grid_stride()) {
    const size_t i = k < head ? k : k + 8 * num_vectors;
    sum[i] = sum[i] + scale * from_low_precision_bits<kType>(gradient[i]);
  }
}

cudaError_t launch_fp32(float* sum, const float* gradient, float scale, size_t count, cudaStream_t stream) {
  const void* const pointers[] = {sum, gradient};
  const VectorSpan span = vector_span(count, pointers, 2);
  const unsigned blocks = num_blocks(count, span.num_vectors > 0 ? 4 : 1);
  accumulate_fp32_kernel<<<blocks, kThreads, 0, stream>>>(sum, gradient, scale, count, span);
  return cudaGetLastError();
}

template <ElementType kType>
cudaError_t launch_low_precision(float* sum, const uint16_t* gradient, float scale, size_t count, cudaStream_t stream) {
  size_t head = elements_to_boundary(gradient, sizeof(uint16_t));
  const bool fits = head < count && is_aligned(sum + head, 16);
  const size_t num_vectors = fits ? (count - head) / 8 : 0;
  if (!fits) head = count;
  const unsigned blocks = num_blocks(count, num_vectors > 0 ? 8 : 1);
  accumulate_low_precision_kernel<kType>
      <<<blocks, kThreads, 0, stream>>>(sum, gradient, scale, count, head, num_vectors);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_accumulate(float* sum, const void* gradient, ElementType gradient_type, float scale, size_t count,
                              cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  switch (gradient_type) {
    case ElementType::kFloat32:
      return launch_fp32(sum, static_cast<const float*>(gradient), scale, count, stream);
    case ElementType::kBFloat16:
      return launch_low_precision<ElementType::kBFloat16>(sum, static_cast<const uint16_t*>(gradient), scale, count,
                                                          stream);
    case ElementType::kFloat16:
      return launch_low_precision<ElementType::kFloat16>(sum, static_cast<const uint16_t*>(gradient), scale, count,
                                                         stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace dslaunch::kernels
