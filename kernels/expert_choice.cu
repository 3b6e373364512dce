#include "kernels/eight_elements.cuh"
#include "kernels/expert_choice.h"
#include "kernels/with_type.cuh"

namespace dslaunch::kernels {
namespace {

constexpr unsigned kWarp = 32, kBlock = 128;  // a warp has a token
constexpr size_t kMaxExperts = 512, kMaxChoices = kWarp;
constexpr unsigned kAll = 0xFFFFFFFFU;

__device__ inline float warp_sum(float x) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(kAll, x, distance);
  return x;
}

__device__ inline float warp_max(float x) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) x = fmaxf(x, __shfl_xor_sync(kAll, x, distance));
  return x;
}

// The lane's experts are lane, lane + 32 and so on; p: their probabilities, -1 past the last one.
template <ElementType kType, int kEachLane>
__device__ inline void load_probabilities(const ExpertChoice& a, size_t token, unsigned lane, float (&p)[kEachLane]) {
  float largest = -INFINITY;
#pragma unroll
  for (int i = 0; i < kEachLane; ++i) {
    const size_t expert = lane + static_cast<size_t>(i) * kWarp;
    p[i] = expert < a.experts ? load_element<kType>(a.logits, token * a.experts + expert) : -INFINITY;
    largest = fmaxf(largest, p[i]);
  }
  largest = warp_max(largest);
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < kEachLane; ++i) {
    const bool is_one = lane + static_cast<size_t>(i) * kWarp < a.experts;
    p[i] = is_one ? expf(p[i] - largest) : 0.0F;
    sum += p[i];
  }
  sum = warp_sum(sum);
#pragma unroll
  for (int i = 0; i < kEachLane; ++i) {
    p[i] = lane + static_cast<size_t>(i) * kWarp < a.experts ? p[i] / sum : -1.0F;
  }
}

template <ElementType kType, int kEachLane>
__global__ void __launch_bounds__(kBlock) expert_choice_kernel(const ExpertChoice a, float* weights, int64_t* indices) {
  const unsigned lane = threadIdx.x % kWarp;
  const size_t token = blockIdx.x * static_cast<size_t>(kBlock / kWarp) + threadIdx.x / kWarp;
  if (token >= a.tokens) return;
  float p[kEachLane];
  load_probabilities<kType, kEachLane>(a, token, lane, p);
  float mine = 0.0F;  // of the choice with this lane's number
  int chosen = 0;
  for (int choice = 0; choice < static_cast<int>(a.choices); ++choice) {
    float best = -2.0F;
    int at = 0;
#pragma unroll
    for (int i = 0; i < kEachLane; ++i) {
      // Also what is not a number: then it stays the first.
      if (!(p[i] <= best)) best = p[i], at = static_cast<int>(lane) + i * static_cast<int>(kWarp);
    }
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      const float other = __shfl_xor_sync(kAll, best, distance);
      const int other_at = __shfl_xor_sync(kAll, at, distance);
      if (other > best || (!(other < best) && other_at < at)) best = other, at = other_at;
    }
    at = __shfl_sync(kAll, at, 0);
    best = __shfl_sync(kAll, best, 0);
    if (static_cast<int>(lane) == choice) mine = best, chosen = at;
#pragma unroll
    for (int i = 0; i < kEachLane; ++i) {
      if (static_cast<int>(lane) + i * static_cast<int>(kWarp) == at) p[i] = -1.0F;
    }
  }
  const bool is_choice = lane < a.choices;
  const float sum = warp_sum(is_choice ? mine : 0.0F);
  if (!is_choice) return;
  weights[token * a.choices + lane] = a.normalizes ? mine / sum : mine;
  indices[token * a.choices + lane] = chosen;
}

template <ElementType kType, int kEachLane>
__global__ void __launch_bounds__(kBlock)
    expert_choice_gradient_kernel(const ExpertChoice a, const int64_t* indices, const float* upstream, void* gradient) {
  const unsigned lane = threadIdx.x % kWarp;
  const size_t token = blockIdx.x * static_cast<size_t>(kBlock / kWarp) + threadIdx.x / kWarp;
  if (token >= a.tokens) return;
  const bool is_choice = lane < a.choices;
  const float given = is_choice ? upstream[token * a.choices + lane] : 0.0F;
  const int chosen = is_choice ? static_cast<int>(indices[token * a.choices + lane]) : -1;
  float p[kEachLane];
  load_probabilities<kType, kEachLane>(a, token, lane, p);
  float weight = 0.0F;  // of the choice with this lane's number
  for (int choice = 0; choice < static_cast<int>(a.choices); ++choice) {
    const int expert = __shfl_sync(kAll, chosen, choice);
    float held = 0.0F;
#pragma unroll
    for (int i = 0; i < kEachLane; ++i) {
      if (static_cast<int>(lane) + i * static_cast<int>(kWarp) == expert) held = p[i];
    }
    held = __shfl_sync(kAll, held, expert % static_cast<int>(kWarp));
    if (static_cast<int>(lane) == choice) weight = held;
  }
  const float sum = warp_sum(weight);
  if (a.normalizes) weight /= sum;
  const float common = warp_sum(weight * given);
  float out[kEachLane];
#pragma unroll
  for (int i = 0; i < kEachLane; ++i) out[i] = a.normalizes ? 0.0F : -p[i] * common;
  for (int choice = 0; choice < static_cast<int>(a.choices); ++choice) {
    const int expert = __shfl_sync(kAll, chosen, choice);
    const float of_weight = __shfl_sync(kAll, weight, choice), of_given = __shfl_sync(kAll, given, choice);
#pragma unroll
    for (int i = 0; i < kEachLane; ++i) {
      if (static_cast<int>(lane) + i * static_cast<int>(kWarp) == expert) out[i] = of_weight * (of_given - common);
    }
  }
#pragma unroll
  for (int i = 0; i < kEachLane; ++i) {
    const size_t expert = lane + static_cast<size_t>(i) * kWarp;
    if (expert < a.experts) store_element<kType>(gradient, token * a.experts + expert, out[i]);
  }
}

// Calls `launch` with the number of a lane's experts as a std::integral_constant.
template <class Launch>
cudaError_t with_experts(size_t experts, Launch launch) {
  if (experts <= kWarp) return launch(std::integral_constant<int, 1>());
  if (experts <= 4 * kWarp) return launch(std::integral_constant<int, 4>());
  return launch(std::integral_constant<int, kMaxExperts / kWarp>());
}

unsigned num_choice_blocks(const ExpertChoice& a) {
  return static_cast<unsigned>((a.tokens + kBlock / kWarp - 1) / (kBlock / kWarp));
}

}  // namespace

bool expert_choice_fits(size_t experts, size_t choices) {
  return experts > 0 && experts <= kMaxExperts && choices > 0 && choices <= kMaxChoices && choices <= experts;
}

cudaError_t launch_expert_choice(const ExpertChoice& a, float* weights, int64_t* indices, cudaStream_t stream) {
  if (a.tokens == 0) return cudaSuccess;
  return with_type(a.type, [&](auto type) {
    return with_experts(a.experts, [&](auto each) {
      expert_choice_kernel<decltype(type)::value, decltype(each)::value>
          <<<num_choice_blocks(a), kBlock, 0, stream>>>(a, weights, indices);
      return cudaGetLastError();
    });
  });
}

cudaError_t launch_expert_choice_gradient(const ExpertChoice& a, const int64_t* indices, const float* upstream,
                                          void* gradient, cudaStream_t stream) {
  if (a.tokens == 0) return cudaSuccess;
  return with_type(a.type, [&](auto type) {
    return with_experts(a.experts, [&](auto each) {
      expert_choice_gradient_kernel<decltype(type)::value, decltype(each)::value>
          <<<num_choice_blocks(a), kBlock, 0, stream>>>(a, indices, upstream, gradient);
      return cudaGetLastError();
    });
  });
}

}  // namespace dslaunch::kernels
