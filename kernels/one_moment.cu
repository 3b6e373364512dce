#include "kernels/one_moment.h"

#include "kernels/gradient.cuh"
#include "kernels/launch_shape.cuh"
#include "kernels/low_precision.cuh"
#include "kernels/one_moment_rules.h"
#include "kernels/step_control.cuh"
#include "kernels/with_type.cuh"

namespace dslaunch::kernels {
namespace {

template <class Rule, ElementType kGradient, ElementType kLow>
__global__ void __launch_bounds__(kThreads)
    one_moment_kernel(const OneMomentArguments<typename Rule::Values> a, const VectorSpan span) {
  if (is_skipped(a.control)) return;
  const typename Rule::Values c = select_coefficients(a.coefficients);
  const float factor = gradient_factor(a.control) * c.direction;
  const bool wide = reinterpret_cast<uintptr_t>(static_cast<const uint16_t*>(a.low_precision) + span.head) % 8 == 0;
  auto* master4 = reinterpret_cast<float4*>(a.master + span.head);
  const GradientReader<kGradient> gradient(a.gradient, span.head);
  auto* moment4 = Rule::kHasMoment ? reinterpret_cast<float4*>(a.moment + span.head) : nullptr;
  for (size_t i = grid_thread(); i < span.num_vectors; i += grid_stride()) {
    float4 p = master4[i];
    const float4 g = gradient.vector(i);
    float4 m = Rule::kHasMoment ? moment4[i] : make_float4(0, 0, 0, 0);
    Rule::update(p.x, g.x * factor, m.x, c);
    Rule::update(p.y, g.y * factor, m.y, c);
    Rule::update(p.z, g.z * factor, m.z, c);
    Rule::update(p.w, g.w * factor, m.w, c);
    master4[i] = p;
    if constexpr (Rule::kHasMoment) moment4[i] = m;
    store_low_precision4<kLow>(a.low_precision, span.head + 4 * i, p, wide);
  }
  const size_t num_outside = a.count - 4 * span.num_vectors;
  for (size_t k = grid_thread(); k < num_outside; k += grid_stride()) {
    const size_t i = outside(span, k);
    float p = a.master[i];
    float m = Rule::kHasMoment ? a.moment[i] : 0.0F;
    Rule::update(p, gradient.element(i) * factor, m, c);
    a.master[i] = p;
    if constexpr (Rule::kHasMoment) a.moment[i] = m;
    store_low_precision<kLow>(a.low_precision, i, p);
  }
}

template <class Rule>
cudaError_t launch(const OneMomentArguments<typename Rule::Values>& a, cudaStream_t stream) {
  if (a.count == 0) return cudaSuccess;
  const void* const with_moment[] = {a.master, a.moment, a.gradient};
  const void* const without[] = {a.master, a.gradient};
  const VectorSpan span = Rule::kHasMoment ? gradient_span(a.count, with_moment, 3, a.gradient_type)
                                           : gradient_span(a.count, without, 2, a.gradient_type);
  const unsigned blocks = num_blocks(a.count, span.num_vectors > 0 ? 4 : 1);
  return with_type(a.gradient_type, [&](auto gradient) {
    return with_low_precision(a.low_precision, a.low_precision_type, [&](auto low) {
      one_moment_kernel<Rule, gradient, low><<<blocks, kThreads, 0, stream>>>(a, span);
      return cudaGetLastError();
    });
  });
}

}  // namespace

cudaError_t launch_sgd(const SgdArguments& a, cudaStream_t stream) {
  return a.moment == nullptr ? launch<SgdRule>(a, stream) : launch<SgdMomentumRule>(a, stream);
}

cudaError_t launch_lion(const LionArguments& a, cudaStream_t stream) {
  return launch<LionRule>(a, stream);
}

cudaError_t launch_adagrad(const AdagradArguments& a, cudaStream_t stream) {
  return launch<AdagradRule>(a, stream);
}

}  // namespace dslaunch::kernels
