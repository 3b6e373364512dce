#include "kernels/lion.h"

#include "kernels/launch_shape.cuh"
#include "kernels/low_precision.cuh"
#include "kernels/step_control.cuh"

namespace dslaunch::kernels {
namespace {

__device__ void update_element(float& p, float gradient, float& m, float factor, const LionCoefficients& c) {
  const float g = gradient * factor;
  const float mixed = c.beta1 * m + c.one_minus_beta1 * g;
  const float sign = mixed > 0.0F ? 1.0F : mixed < 0.0F ? -1.0F : mixed;  // 0 stays 0, NaN stays NaN
  p = p * c.keep - c.lr * sign;
  m = c.beta2 * m + c.one_minus_beta2 * g;
}

template <ElementType kLow>
__global__ void __launch_bounds__(kThreads) lion_kernel(const LionArguments a, const VectorSpan span) {
  if (is_skipped(a.control)) return;
  const LionCoefficients c = chosen(a.coefficients);
  const float factor = gradient_factor(a.control) * c.direction;
  const bool wide = reinterpret_cast<uintptr_t>(static_cast<const uint16_t*>(a.low_precision) + span.head) % 8 == 0;
  auto* master4 = reinterpret_cast<float4*>(a.master + span.head);
  const auto* gradient4 = reinterpret_cast<const float4*>(a.gradient + span.head);
  auto* moment4 = reinterpret_cast<float4*>(a.exp_avg + span.head);
  for (size_t i = grid_thread(); i < span.num_vectors; i += grid_stride()) {
    float4 p = master4[i], m = moment4[i];
    const float4 g = __ldcs(gradient4 + i);  // read once: leave the cache to others
    update_element(p.x, g.x, m.x, factor, c);
    update_element(p.y, g.y, m.y, factor, c);
    update_element(p.z, g.z, m.z, factor, c);
    update_element(p.w, g.w, m.w, factor, c);
    master4[i] = p;
    moment4[i] = m;
    store_low_precision4<kLow>(a.low_precision, span.head + 4 * i, p, wide);
  }
  const size_t num_outside = a.count - 4 * span.num_vectors;
  for (size_t k = grid_thread(); k < num_outside; k += grid_stride()) {
    const size_t i = outside(span, k);
    float p = a.master[i], m = a.exp_avg[i];
    update_element(p, a.gradient[i], m, factor, c);
    a.master[i] = p;
    a.exp_avg[i] = m;
    store_low_precision<kLow>(a.low_precision, i, p);
  }
}

}  // namespace

cudaError_t launch_lion(const LionArguments& a, cudaStream_t stream) {
  if (a.count == 0) return cudaSuccess;
  const void* const pointers[] = {a.master, a.gradient, a.exp_avg};
  const VectorSpan span = vector_span(a.count, pointers, 3);
  const unsigned blocks = num_blocks(a.count, span.num_vectors > 0 ? 4 : 1);
  if (a.low_precision == nullptr) {
    lion_kernel<ElementType::kFloat32><<<blocks, kThreads, 0, stream>>>(a, span);
  } else if (a.low_precision_type == ElementType::kBFloat16) {
    lion_kernel<ElementType::kBFloat16><<<blocks, kThreads, 0, stream>>>(a, span);
  } else if (a.low_precision_type == ElementType::kFloat16) {
    lion_kernel<ElementType::kFloat16><<<blocks, kThreads, 0, stream>>>(a, span);
  } else {
    return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

}  // namespace dslaunch::kernels
