#include "kernels/adamw.h"

#include "kernels/gradient.cuh"
#include "kernels/launch_shape.cuh"
#include "kernels/low_precision.cuh"
#include "kernels/step_control.cuh"
#include "kernels/with_type.cuh"

namespace dslaunch::kernels {
namespace {

template <bool kAmsgrad>
__device__ void update_element(float& p, float gradient, float& m, float& v, float& largest, float factor,
                               const AdamCoefficients& c) {
  const float g = gradient * factor + c.coupled_decay * p;
  m = m + (g - m) * c.one_minus_beta1;
  v = v * c.beta2 + g * g * c.one_minus_beta2;
  float w = v;
  if constexpr (kAmsgrad) {
    w = largest > v ? largest : v;
    largest = w;
  }
  const float denominator = sqrtf(w) * c.inverse_root_correction + c.eps;
  p = p - (c.step_size * (m / denominator) + c.decoupled_decay * p);
}

template <bool kAmsgrad, ElementType kGradient, ElementType kLow>
__global__ void __launch_bounds__(kThreads) adamw_kernel(const AdamArguments a, const VectorSpan span) {
  if (is_skipped(a.control)) return;
  const AdamCoefficients c = select_coefficients(a.coefficients);
  const float factor = gradient_factor(a.control) * c.direction;
  const bool wide = reinterpret_cast<uintptr_t>(static_cast<const uint16_t*>(a.low_precision) + span.head) % 8 == 0;
  auto* master4 = reinterpret_cast<float4*>(a.master + span.head);
  const GradientReader<kGradient> gradient(a.gradient, span.head);
  auto* exp_avg4 = reinterpret_cast<float4*>(a.exp_avg + span.head);
  auto* exp_avg_sq4 = reinterpret_cast<float4*>(a.exp_avg_sq + span.head);
  auto* largest4 = kAmsgrad ? reinterpret_cast<float4*>(a.max_exp_avg_sq + span.head) : nullptr;
  for (size_t i = grid_thread(); i < span.num_vectors; i += grid_stride()) {
    float4 p = master4[i], m = exp_avg4[i], v = exp_avg_sq4[i];
    float4 w = kAmsgrad ? largest4[i] : make_float4(0, 0, 0, 0);
    const float4 g = gradient.vector(i);
    update_element<kAmsgrad>(p.x, g.x, m.x, v.x, w.x, factor, c);
    update_element<kAmsgrad>(p.y, g.y, m.y, v.y, w.y, factor, c);
    update_element<kAmsgrad>(p.z, g.z, m.z, v.z, w.z, factor, c);
    update_element<kAmsgrad>(p.w, g.w, m.w, v.w, w.w, factor, c);
    master4[i] = p;
    exp_avg4[i] = m;
    exp_avg_sq4[i] = v;
    if constexpr (kAmsgrad) largest4[i] = w;
    store_low_precision4<kLow>(a.low_precision, span.head + 4 * i, p, wide);
  }
  const size_t num_outside = a.count - 4 * span.num_vectors;
  for (size_t k = grid_thread(); k < num_outside; k += grid_stride()) {
    const size_t i = outside(span, k);
    float p = a.master[i], m = a.exp_avg[i], v = a.exp_avg_sq[i];
    float w = kAmsgrad ? a.max_exp_avg_sq[i] : 0.0F;
    update_element<kAmsgrad>(p, gradient.element(i), m, v, w, factor, c);
    a.master[i] = p;
    a.exp_avg[i] = m;
    a.exp_avg_sq[i] = v;
    if constexpr (kAmsgrad) a.max_exp_avg_sq[i] = w;
    store_low_precision<kLow>(a.low_precision, i, p);
  }
}

template <bool kAmsgrad>
cudaError_t launch(const AdamArguments& a, const VectorSpan& span, cudaStream_t stream) {
  const unsigned blocks = num_blocks(a.count, span.num_vectors > 0 ? 4 : 1);
  return with_type(a.gradient_type, [&](auto gradient) {
    return with_low_precision(a.low_precision, a.low_precision_type, [&](auto low) {
      adamw_kernel<kAmsgrad, gradient, low><<<blocks, kThreads, 0, stream>>>(a, span);
      return cudaGetLastError();
    });
  });
}

}  // namespace

cudaError_t launch_adamw(const AdamArguments& a, cudaStream_t stream) {
  if (a.count == 0) return cudaSuccess;
  if (a.max_exp_avg_sq == nullptr) {
    const void* const pointers[] = {a.master, a.exp_avg, a.exp_avg_sq, a.gradient};
    return launch<false>(a, gradient_span(a.count, pointers, 4, a.gradient_type), stream);
  }
  const void* const pointers[] = {a.master, a.exp_avg, a.exp_avg_sq, a.max_exp_avg_sq, a.gradient};
  return launch<true>(a, gradient_span(a.count, pointers, 5, a.gradient_type), stream);
}

}  // namespace dslaunch::kernels
