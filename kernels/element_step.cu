#include "kernels/element_step.h"

#include "kernels/gradient.cuh"
#include "kernels/launch_shape.cuh"
#include "kernels/low_precision.cuh"
#include "kernels/step_control.cuh"
#include "kernels/with_type.cuh"

namespace dslaunch::kernels {
namespace {

// The four elements of a vector; indices are known when the loops are unrolled, so all stays in registers.
template <class Rule>
__device__ void update_vector(float4& p, const float4& g, float4 (&m)[kMaxMoments], float factor,
                              const typename Rule::Values& c) {
#pragma unroll
  for (int lane = 0; lane < 4; ++lane) {
    float moments[kMaxMoments];
#pragma unroll
    for (int i = 0; i < Rule::kMoments; ++i) moments[i] = (&m[i].x)[lane];
    Rule::update((&p.x)[lane], (&g.x)[lane] * factor, moments, c);
#pragma unroll
    for (int i = 0; i < Rule::kMoments; ++i) (&m[i].x)[lane] = moments[i];
  }
}

template <class Rule, ElementType kGradient, ElementType kLow>
__global__ void __launch_bounds__(kThreads) element_step_kernel(const ElementArguments<Rule> a, const VectorSpan span) {
  if (is_skipped(a.control)) return;
  const typename Rule::Values c = select_coefficients(a.coefficients);
  const float factor = gradient_factor(a.control) * c.direction;
  const bool wide = reinterpret_cast<uintptr_t>(static_cast<const uint16_t*>(a.low_precision) + span.head) % 8 == 0;
  auto* master4 = reinterpret_cast<float4*>(a.master + span.head);
  const GradientReader<kGradient> gradient(a.gradient, span.head);
  for (size_t i = grid_thread(); i < span.num_vectors; i += grid_stride()) {
    float4 p = master4[i];
    float4 m[kMaxMoments];
#pragma unroll
    for (int k = 0; k < Rule::kMoments; ++k) m[k] = reinterpret_cast<const float4*>(a.moments[k] + span.head)[i];
    const float4 g = gradient.vector(i);
    update_vector<Rule>(p, g, m, factor, c);
    master4[i] = p;
#pragma unroll
    for (int k = 0; k < Rule::kMoments; ++k) reinterpret_cast<float4*>(a.moments[k] + span.head)[i] = m[k];
    store_low_precision4<kLow>(a.low_precision, span.head + 4 * i, p, wide);
  }
  const size_t num_outside = a.count - 4 * span.num_vectors;
  for (size_t k = grid_thread(); k < num_outside; k += grid_stride()) {
    const size_t i = outside(span, k);
    float p = a.master[i];
    float m[kMaxMoments];
#pragma unroll
    for (int j = 0; j < Rule::kMoments; ++j) m[j] = a.moments[j][i];
    Rule::update(p, gradient.element(i) * factor, m, c);
    a.master[i] = p;
#pragma unroll
    for (int j = 0; j < Rule::kMoments; ++j) a.moments[j][i] = m[j];
    store_low_precision<kLow>(a.low_precision, i, p);
  }
}

}  // namespace

template <class Rule>
cudaError_t launch_element_step(const ElementArguments<Rule>& a, cudaStream_t stream) {
  if (a.count == 0) return cudaSuccess;
  const void* pointers[kMaxMoments + 2] = {a.master};
  int num_pointers = 1;
  for (int i = 0; i < Rule::kMoments; ++i) pointers[num_pointers++] = a.moments[i];
  pointers[num_pointers++] = a.gradient;
  const VectorSpan span = gradient_span(a.count, pointers, num_pointers, a.gradient_type);
  const unsigned blocks = num_blocks(a.count, span.num_vectors > 0 ? 4 : 1);
  return with_type(a.gradient_type, [&](auto gradient) {
    return with_low_precision(a.low_precision, a.low_precision_type, [&](auto low) {
      element_step_kernel<Rule, gradient, low><<<blocks, kThreads, 0, stream>>>(a, span);
      return cudaGetLastError();
    });
  });
}

#define DSL_INSTANTIATE(Rule) \
  template cudaError_t launch_element_step(const ElementArguments<Rule>& arguments, cudaStream_t stream);
DSL_ELEMENT_RULES(DSL_INSTANTIATE)
#undef DSL_INSTANTIATE

}  // namespace dslaunch::kernels
