#include "kernels/adagrad.h"

#include "kernels/launch_shape.cuh"
#include "kernels/low_precision.cuh"
#include "kernels/step_control.cuh"

namespace dslaunch::kernels {
namespace {

__device__ void update_element(float& p, float gradient, float& s, float factor, const AdagradCoefficients& c) {
  const float g = gradient * factor + c.coupled_decay * p;
  s = s + g * g;
  p = p - c.step_size * (g / (sqrtf(s) + c.eps));
}

template <ElementType kLow>
__global__ void __launch_bounds__(kThreads) adagrad_kernel(const AdagradArguments a, const VectorSpan span) {
  if (is_skipped(a.control)) return;
  const AdagradCoefficients c = chosen(a.coefficients);
  const float factor = gradient_factor(a.control) * c.direction;
  const bool wide = reinterpret_cast<uintptr_t>(static_cast<const uint16_t*>(a.low_precision) + span.head) % 8 == 0;
  auto* master4 = reinterpret_cast<float4*>(a.master + span.head);
  const auto* gradient4 = reinterpret_cast<const float4*>(a.gradient + span.head);
  auto* moment4 = reinterpret_cast<float4*>(a.sum + span.head);
  for (size_t i = grid_thread(); i < span.num_vectors; i += grid_stride()) {
    float4 p = master4[i], s = moment4[i];
    const float4 g = __ldcs(gradient4 + i);  // read once: leave the cache to others
    update_element(p.x, g.x, s.x, factor, c);
    update_element(p.y, g.y, s.y, factor, c);
    update_element(p.z, g.z, s.z, factor, c);
    update_element(p.w, g.w, s.w, factor, c);
    master4[i] = p;
    moment4[i] = s;
    store_low_precision4<kLow>(a.low_precision, span.head + 4 * i, p, wide);
  }
  const size_t num_outside = a.count - 4 * span.num_vectors;
  for (size_t k = grid_thread(); k < num_outside; k += grid_stride()) {
    const size_t i = outside(span, k);
    float p = a.master[i], s = a.sum[i];
    update_element(p, a.gradient[i], s, factor, c);
    a.master[i] = p;
    a.sum[i] = s;
    store_low_precision<kLow>(a.low_precision, i, p);
  }
}

}  // namespace

cudaError_t launch_adagrad(const AdagradArguments& a, cudaStream_t stream) {
  if (a.count == 0) return cudaSuccess;
  const void* const pointers[] = {a.master, a.gradient, a.sum};
  const VectorSpan span = vector_span(a.count, pointers, 3);
  const unsigned blocks = num_blocks(a.count, span.num_vectors > 0 ? 4 : 1);
  if (a.low_precision == nullptr) {
    adagrad_kernel<ElementType::kFloat32><<<blocks, kThreads, 0, stream>>>(a, span);
  } else if (a.low_precision_type == ElementType::kBFloat16) {
    adagrad_kernel<ElementType::kBFloat16><<<blocks, kThreads, 0, stream>>>(a, span);
  } else if (a.low_precision_type == ElementType::kFloat16) {
    adagrad_kernel<ElementType::kFloat16><<<blocks, kThreads, 0, stream>>>(a, span);
  } else {
    return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

}  // namespace dslaunch::kernels
