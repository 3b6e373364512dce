#include "kernels/lamb.h"

#include "kernels/block_sum.cuh"
#include "kernels/gradient.cuh"
#include "kernels/launch_shape.cuh"
#include "kernels/low_precision.cuh"
#include "kernels/step_control.cuh"
#include "kernels/with_type.cuh"

namespace dslaunch::kernels {
namespace {

constexpr size_t kElementsPerThread = 8;
constexpr unsigned kMaxPartials = 1024;

__device__ float update_of(const LambCoefficients& c, float p, float m, float v) {
  return m / (sqrtf(v + c.eps_inside) + c.eps_outside) + c.decay * p;
}

__device__ void first_pass(float p, float gradient, float& m, float& v, float factor, const LambCoefficients& c,
                           LambSums& sums) {
  const float g = gradient * factor;
  m = c.beta1 * m + c.one_minus_beta1 * g;
  v = c.beta2 * v + c.one_minus_beta2 * g * g;
  sums.parameter += square(p);
  sums.update += square(update_of(c, p, m, v));
}

template <ElementType kGradient>
__global__ void __launch_bounds__(kThreads)
    lamb_moments_kernel(const LambArguments a, const VectorSpan span, LambSums* __restrict__ partials) {
  if (is_skipped(a.control)) return;
  const LambCoefficients c = select_coefficients(a.coefficients);
  const float factor = gradient_factor(a.control) * c.direction;
  const auto* master4 = reinterpret_cast<const float4*>(a.master + span.head);
  const GradientReader<kGradient> gradient(a.gradient, span.head);
  auto* exp_avg4 = reinterpret_cast<float4*>(a.exp_avg + span.head);
  auto* exp_avg_sq4 = reinterpret_cast<float4*>(a.exp_avg_sq + span.head);
  LambSums sums;
  for (size_t i = grid_thread(); i < span.num_vectors; i += grid_stride()) {
    const float4 p = master4[i];
    const float4 g = gradient.vector(i);
    float4 m = exp_avg4[i], v = exp_avg_sq4[i];
    first_pass(p.x, g.x, m.x, v.x, factor, c, sums);
    first_pass(p.y, g.y, m.y, v.y, factor, c, sums);
    first_pass(p.z, g.z, m.z, v.z, factor, c, sums);
    first_pass(p.w, g.w, m.w, v.w, factor, c, sums);
    exp_avg4[i] = m;
    exp_avg_sq4[i] = v;
  }
  const size_t num_outside = a.count - 4 * span.num_vectors;
  for (size_t k = grid_thread(); k < num_outside; k += grid_stride()) {
    const size_t i = outside(span, k);
    float m = a.exp_avg[i], v = a.exp_avg_sq[i];
    first_pass(a.master[i], gradient.element(i), m, v, factor, c, sums);
    a.exp_avg[i] = m;
    a.exp_avg_sq[i] = v;
  }
  sums.parameter = block_sum(sums.parameter);
  __syncthreads();
  sums.update = block_sum(sums.update);
  if (threadIdx.x == 0) partials[blockIdx.x] = sums;
}

__global__ void __launch_bounds__(kThreads)
    lamb_sums_kernel(const LambSums* __restrict__ partials, const int64_t* __restrict__ ends,
                     LambSums* __restrict__ sums) {
  const int64_t begin = blockIdx.x == 0 ? 0 : ends[blockIdx.x - 1];
  LambSums sum;
  for (int64_t i = begin + threadIdx.x; i < ends[blockIdx.x]; i += kThreads) {
    sum.parameter += partials[i].parameter;
    sum.update += partials[i].update;
  }
  sum.parameter = block_sum(sum.parameter);
  __syncthreads();
  sum.update = block_sum(sum.update);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    lamb_ratios_kernel(const LambSums* __restrict__ sums, size_t num_ranks, size_t num_parameters, float min_ratio,
                       float max_ratio, float* __restrict__ ratios) {
  const size_t i = grid_thread();
  if (i >= num_parameters) return;
  LambSums sum;
  for (size_t r = 0; r < num_ranks; ++r) {
    sum.parameter += sums[r * num_parameters + i].parameter;
    sum.update += sums[r * num_parameters + i].update;
  }
  float ratio = 1.0F;
  if (sum.parameter > 0.0 && sum.update > 0.0) {
    ratio = static_cast<float>(sqrt(sum.parameter) / sqrt(sum.update));
    ratio = ratio > max_ratio ? max_ratio : ratio < min_ratio ? min_ratio : ratio;
  }
  ratios[i] = ratio;
}

template <ElementType kLow>
__global__ void __launch_bounds__(kThreads)
    lamb_kernel(const LambArguments a, const float* __restrict__ ratio, const VectorSpan span) {
  if (is_skipped(a.control)) return;
  const LambCoefficients c = select_coefficients(a.coefficients);
  const float scale = c.step_size * *ratio;
  const bool wide = reinterpret_cast<uintptr_t>(static_cast<const uint16_t*>(a.low_precision) + span.head) % 8 == 0;
  auto* master4 = reinterpret_cast<float4*>(a.master + span.head);
  const auto* exp_avg4 = reinterpret_cast<const float4*>(a.exp_avg + span.head);
  const auto* exp_avg_sq4 = reinterpret_cast<const float4*>(a.exp_avg_sq + span.head);
  for (size_t i = grid_thread(); i < span.num_vectors; i += grid_stride()) {
    float4 p = master4[i];
    const float4 m = exp_avg4[i], v = exp_avg_sq4[i];
    p.x = p.x - scale * update_of(c, p.x, m.x, v.x);
    p.y = p.y - scale * update_of(c, p.y, m.y, v.y);
    p.z = p.z - scale * update_of(c, p.z, m.z, v.z);
    p.w = p.w - scale * update_of(c, p.w, m.w, v.w);
    master4[i] = p;
    store_low_precision4<kLow>(a.low_precision, span.head + 4 * i, p, wide);
  }
  const size_t num_outside = a.count - 4 * span.num_vectors;
  for (size_t k = grid_thread(); k < num_outside; k += grid_stride()) {
    const size_t i = outside(span, k);
    float p = a.master[i];
    p = p - scale * update_of(c, p, a.exp_avg[i], a.exp_avg_sq[i]);
    a.master[i] = p;
    store_low_precision<kLow>(a.low_precision, i, p);
  }
}

}  // namespace

size_t num_lamb_partials(size_t count) {
  return count == 0 ? 0 : num_blocks(count, kElementsPerThread, kMaxPartials);
}

cudaError_t launch_lamb_moments(const LambArguments& a, LambSums* partials, cudaStream_t stream) {
  if (a.count == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(num_lamb_partials(a.count));
  const void* const pointers[] = {a.master, a.exp_avg, a.exp_avg_sq, a.gradient};
  const VectorSpan span = gradient_span(a.count, pointers, 4, a.gradient_type);
  return with_type(a.gradient_type, [&](auto gradient) {
    lamb_moments_kernel<gradient><<<blocks, kThreads, 0, stream>>>(a, span, partials);
    return cudaGetLastError();
  });
}

cudaError_t launch_lamb_sums(const LambSums* partials, const int64_t* ends, size_t num_sums, LambSums* sums,
                             cudaStream_t stream) {
  if (num_sums == 0) return cudaSuccess;
  lamb_sums_kernel<<<static_cast<unsigned>(num_sums), kThreads, 0, stream>>>(partials, ends, sums);
  return cudaGetLastError();
}

cudaError_t launch_lamb_ratios(const LambSums* sums, size_t num_ranks, size_t num_parameters, float min_ratio,
                               float max_ratio, float* ratios, cudaStream_t stream) {
  if (num_parameters == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((num_parameters + kThreads - 1) / kThreads);
  lamb_ratios_kernel<<<blocks, kThreads, 0, stream>>>(sums, num_ranks, num_parameters, min_ratio, max_ratio, ratios);
  return cudaGetLastError();
}

cudaError_t launch_lamb(const LambArguments& a, const float* ratio, cudaStream_t stream) {
  if (a.count == 0) return cudaSuccess;
  const void* const pointers[] = {a.master, a.exp_avg, a.exp_avg_sq};
  const VectorSpan span = vector_span(a.count, pointers, 3);
  const unsigned blocks = num_blocks(a.count, span.num_vectors > 0 ? 4 : 1);
  return with_low_precision(a.low_precision, a.low_precision_type, [&](auto type) {
    lamb_kernel<type><<<blocks, kThreads, 0, stream>>>(a, ratio, span);
    return cudaGetLastError();
  });
}

}  // namespace dslaunch::kernels
