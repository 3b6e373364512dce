#include "kernels/sgd.h"

#include "kernels/launch_shape.cuh"
#include "kernels/low_precision.cuh"
#include "kernels/step_control.cuh"

namespace dslaunch::kernels {
namespace {

template <bool kMomentum>
__device__ void update_element(float& p, float gradient, float& b, float factor, const SgdCoefficients& c) {
  const float g = gradient * factor + c.coupled_decay * p;
  if constexpr (kMomentum) {
    b = c.keep * b + c.share * g;
    p = p - c.lr * (c.gradient_weight * g + c.momentum_weight * b);
  } else {
    p = p - c.lr * g;
  }
}

template <bool kMomentum, ElementType kLow>
__global__ void __launch_bounds__(kThreads) sgd_kernel(const SgdArguments a, const VectorSpan span) {
  if (is_skipped(a.control)) return;
  const SgdCoefficients c = chosen(a.coefficients);
  const float factor = gradient_factor(a.control) * c.direction;
  const bool wide = reinterpret_cast<uintptr_t>(static_cast<const uint16_t*>(a.low_precision) + span.head) % 8 == 0;
  auto* master4 = reinterpret_cast<float4*>(a.master + span.head);
  const auto* gradient4 = reinterpret_cast<const float4*>(a.gradient + span.head);
  auto* momentum4 = kMomentum ? reinterpret_cast<float4*>(a.momentum + span.head) : nullptr;
  for (size_t i = grid_thread(); i < span.num_vectors; i += grid_stride()) {
    float4 p = master4[i];
    const float4 g = __ldcs(gradient4 + i);  // read once: leave the cache to others
    float4 b = kMomentum ? momentum4[i] : make_float4(0, 0, 0, 0);
    update_element<kMomentum>(p.x, g.x, b.x, factor, c);
    update_element<kMomentum>(p.y, g.y, b.y, factor, c);
    update_element<kMomentum>(p.z, g.z, b.z, factor, c);
    update_element<kMomentum>(p.w, g.w, b.w, factor, c);
    master4[i] = p;
    if constexpr (kMomentum) momentum4[i] = b;
    store_low_precision4<kLow>(a.low_precision, span.head + 4 * i, p, wide);
  }
  const size_t num_outside = a.count - 4 * span.num_vectors;
  for (size_t k = grid_thread(); k < num_outside; k += grid_stride()) {
    const size_t i = outside(span, k);
    float p = a.master[i];
    float b = kMomentum ? a.momentum[i] : 0.0F;
    update_element<kMomentum>(p, a.gradient[i], b, factor, c);
    a.master[i] = p;
    if constexpr (kMomentum) a.momentum[i] = b;
    store_low_precision<kLow>(a.low_precision, i, p);
  }
}

template <bool kMomentum>
cudaError_t launch(const SgdArguments& a, const VectorSpan& span, cudaStream_t stream) {
  const unsigned blocks = num_blocks(a.count, span.num_vectors > 0 ? 4 : 1);
  if (a.low_precision == nullptr) {
    sgd_kernel<kMomentum, ElementType::kFloat32><<<blocks, kThreads, 0, stream>>>(a, span);
  } else if (a.low_precision_type == ElementType::kBFloat16) {
    sgd_kernel<kMomentum, ElementType::kBFloat16><<<blocks, kThreads, 0, stream>>>(a, span);
  } else if (a.low_precision_type == ElementType::kFloat16) {
    sgd_kernel<kMomentum, ElementType::kFloat16><<<blocks, kThreads, 0, stream>>>(a, span);
  } else {
    return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_sgd(const SgdArguments& a, cudaStream_t stream) {
  if (a.count == 0) return cudaSuccess;
  const void* const pointers[] = {a.master, a.gradient, a.momentum};
  if (a.momentum == nullptr) return launch<false>(a, vector_span(a.count, pointers, 2), stream);
  return launch<true>(a, vector_span(a.count, pointers, 3), stream);
}

}  // namespace dslaunch::kernels
