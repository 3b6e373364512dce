#include "kernels/eight_elements.cuh"
#include "kernels/expert_rows.h"
#include "kernels/with_type.cuh"

namespace dslaunch::kernels {
namespace {

constexpr unsigned kOrderThreads = 1024, kWarp = 32, kOrderWarps = kOrderThreads / kWarp;
constexpr unsigned kMaxClasses = kMaxExperts + 1;  // the last one: of no expert
constexpr unsigned kMaxRowThreads = 256;

size_t num_order_blocks(size_t entries) {
  return (entries + kOrderThreads - 1) / kOrderThreads;
}

// Of this thread's entry, the class; past the end a number that no class has.
__device__ inline unsigned class_of(const ExpertOrder& a, size_t entry) {
  const auto none = static_cast<unsigned>(a.num_experts);
  if (entry >= a.entries) return none + 1;
  const auto expert = static_cast<uint64_t>(a.experts[entry]);  // a negative one is large
  return expert < a.num_experts ? static_cast<unsigned>(expert) : none;
}

// counts[block][class]
__global__ void __launch_bounds__(kOrderThreads) expert_counts_kernel(const ExpertOrder a) {
  __shared__ int32_t counts[kMaxClasses];
  const auto classes = static_cast<unsigned>(a.num_experts) + 1;
  for (unsigned c = threadIdx.x; c < classes; c += kOrderThreads) counts[c] = 0;
  __syncthreads();
  const unsigned mine = class_of(a, static_cast<size_t>(blockIdx.x) * kOrderThreads + threadIdx.x);
  const unsigned same = __match_any_sync(0xFFFFFFFFU, mine);
  const bool is_first = threadIdx.x % kWarp == static_cast<unsigned>(__ffs(static_cast<int>(same))) - 1;
  if (is_first && mine < classes) atomicAdd(&counts[mine], __popc(same));
  __syncthreads();
  for (unsigned c = threadIdx.x; c < classes; c += kOrderThreads) {
    a.counts[static_cast<size_t>(blockIdx.x) * classes + c] = counts[c];
  }
}

// The sum of the values of the threads before this one.
__device__ inline int32_t sum_before(int32_t value) {
  __shared__ int32_t of_warps[kOrderWarps];
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  int32_t sum = value;
  for (unsigned distance = 1; distance < kWarp; distance *= 2) {
    const int32_t other = __shfl_up_sync(0xFFFFFFFFU, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == kWarp - 1) of_warps[warp] = sum;
  __syncthreads();
  int32_t before = 0;
  for (unsigned w = 0; w < warp; ++w) before += of_warps[w];
  return before + sum - value;
}

__global__ void __launch_bounds__(kOrderThreads) expert_order_kernel(const ExpertOrder a) {
  __shared__ uint16_t of_warps[kOrderWarps * kMaxClasses];  // first counts, then the counts of the warps before
  __shared__ int32_t starts[kMaxClasses];                   // of this block's entries
  const auto classes = static_cast<unsigned>(a.num_experts) + 1;
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (unsigned i = threadIdx.x; i < kOrderWarps * classes; i += kOrderThreads) of_warps[i] = 0;
  __syncthreads();
  const size_t entry = static_cast<size_t>(blockIdx.x) * kOrderThreads + threadIdx.x;
  const unsigned mine = class_of(a, entry);
  const unsigned same = __match_any_sync(0xFFFFFFFFU, mine);
  const auto rank = static_cast<unsigned>(__popc(same & ((1U << lane) - 1)));
  if (rank == 0 && mine < classes) of_warps[warp * classes + mine] = static_cast<uint16_t>(__popc(same));

  const unsigned c = threadIdx.x;  // from here on also a class
  int32_t total = 0, before = 0;
  for (unsigned block = 0; c < classes && block < gridDim.x; ++block) {
    const int32_t count = a.counts[static_cast<size_t>(block) * classes + c];
    total += count;
    if (block < blockIdx.x) before += count;
  }
  const int32_t start = sum_before(total);
  __syncthreads();
  if (c < classes) {
    starts[c] = start + before;
    unsigned sum = 0;
    for (unsigned w = 0; w < kOrderWarps; ++w) {
      const unsigned count = of_warps[w * classes + c];
      of_warps[w * classes + c] = static_cast<uint16_t>(sum);
      sum += count;
    }
    if (blockIdx.x == 0 && c < a.num_experts) a.ends[c] = start + total;
  }
  __syncthreads();
  if (mine >= classes) return;
  const int32_t row = starts[mine] + static_cast<int32_t>(of_warps[warp * classes + mine] + rank);
  a.entry_of_row[row] = static_cast<int32_t>(entry);
  a.row_of_entry[entry] = mine == a.num_experts ? -1 : row;
}

__device__ inline float load_any(const void* values, size_t i, ElementType type) {
  if (type == ElementType::kFloat32) return load_element<ElementType::kFloat32>(values, i);
  return type == ElementType::kBFloat16 ? load_element<ElementType::kBFloat16>(values, i)
                                        : load_element<ElementType::kFloat16>(values, i);
}

__device__ inline void store_any(void* values, size_t i, float value, ElementType type) {
  if (type == ElementType::kFloat32) {
    store_element<ElementType::kFloat32>(values, i, value);
  } else if (type == ElementType::kBFloat16) {
    store_element<ElementType::kBFloat16>(values, i, value);
  } else {
    store_element<ElementType::kFloat16>(values, i, value);
  }
}

// A block has a token.
__device__ inline int64_t row_of(const ExpertRows& a, size_t choice) {
  return a.row_of_entry[blockIdx.x * a.choices + choice];
}
__device__ inline float weight_of(const ExpertRows& a, size_t choice) {
  return a.weights == nullptr ? 1.0F : load_any(a.weights, blockIdx.x * a.choices + choice, a.weight_type);
}

template <ElementType kType>
__global__ void __launch_bounds__(kMaxRowThreads)
    expert_rows_kernel(const ExpertRows a, const void* tokens, void* rows) {
  for (size_t c = threadIdx.x * kEach; c < a.columns; c += blockDim.x * kEach) {
    const auto values = load8_packed<kType>(tokens, blockIdx.x * a.columns + c);
    for (size_t k = 0; k < a.choices; ++k) {
      const int64_t row = row_of(a, k);
      if (row >= 0) store8_packed<kType>(rows, static_cast<size_t>(row) * a.columns + c, values);
    }
  }
}

template <ElementType kType>
__global__ void __launch_bounds__(kMaxRowThreads) expert_sum_kernel(const ExpertRows a, const void* rows, void* out) {
  for (size_t c = threadIdx.x * kEach; c < a.columns; c += blockDim.x * kEach) {
    float sum[kEach] = {};
#pragma unroll 4
    for (size_t k = 0; k < a.choices; ++k) {
      const int64_t row = row_of(a, k);
      if (row < 0) continue;
      const float weight = weight_of(a, k);
      float values[kEach];
      load8_wide<kType>(rows, static_cast<size_t>(row) * a.columns + c, values);
#pragma unroll
      for (int i = 0; i < kEach; ++i) sum[i] += weight * values[i];
    }
    store8_wide<kType>(out, blockIdx.x * a.columns + c, sum);
  }
}

template <ElementType kType>
__global__ void __launch_bounds__(kMaxRowThreads)
    expert_sum_gradient_kernel(const ExpertRows a, const void* upstream, const void* rows, void* row_gradients,
                               void* weight_gradients) {
  __shared__ float of_warps[kMaxRowThreads / kWarp][kMaxExpertChoices];
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (size_t k = 0; k < a.choices; ++k) {
    const int64_t row = row_of(a, k);
    const float weight = weight_of(a, k);
    float sum = 0.0F;
    for (size_t c = threadIdx.x * kEach; row >= 0 && c < a.columns; c += blockDim.x * kEach) {
      const size_t at = static_cast<size_t>(row) * a.columns + c;
      float gradient[kEach], values[kEach];
      load8_wide<kType>(upstream, blockIdx.x * a.columns + c, gradient);
      load8_wide<kType>(rows, at, values);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        sum += gradient[i] * values[i];
        gradient[i] *= weight;
      }
      store8_wide<kType>(row_gradients, at, gradient);
    }
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(0xFFFFFFFFU, sum, distance);
    }
    if (lane == 0) of_warps[warp][k] = sum;
  }
  __syncthreads();
  if (threadIdx.x >= a.choices) return;
  float sum = 0.0F;
  for (unsigned w = 0; w < blockDim.x / kWarp; ++w) sum += of_warps[w][threadIdx.x];
  store_any(weight_gradients, blockIdx.x * a.choices + threadIdx.x, sum, a.weight_type);
}

// Of a block, which has a token: whole warps, at least one thread for each choice.
unsigned row_threads(const ExpertRows& a) {
  const size_t wanted = (a.columns / kEach + kWarp - 1) / kWarp * kWarp;
  return static_cast<unsigned>(wanted < kMaxRowThreads ? wanted : kMaxRowThreads);
}

}  // namespace

size_t num_expert_counts(size_t entries, size_t num_experts) {
  return num_order_blocks(entries) * (num_experts + 1);
}

cudaError_t launch_expert_order(const ExpertOrder& order, cudaStream_t stream) {
  if (order.num_experts > kMaxExperts || order.entries > INT32_MAX) return cudaErrorInvalidValue;
  if (order.entries == 0) return cudaMemsetAsync(order.ends, 0, order.num_experts * sizeof(int32_t), stream);
  const auto blocks = static_cast<unsigned>(num_order_blocks(order.entries));
  expert_counts_kernel<<<blocks, kOrderThreads, 0, stream>>>(order);
  expert_order_kernel<<<blocks, kOrderThreads, 0, stream>>>(order);
  return cudaGetLastError();
}

bool expert_rows_fit(size_t columns, size_t choices, const void* const* arrays, int num_arrays) {
  for (int i = 0; i < num_arrays; ++i) {
    if (!on_16_bytes(arrays[i])) return false;
  }
  return columns > 0 && columns % kEach == 0 && choices > 0 && choices <= kMaxExpertChoices;
}

cudaError_t launch_expert_rows(const ExpertRows& a, const void* of_tokens, void* rows, cudaStream_t stream) {
  if (a.tokens == 0) return cudaSuccess;
  return with_type(a.type, [&](auto type) {
    expert_rows_kernel<decltype(type)::value>
        <<<static_cast<unsigned>(a.tokens), row_threads(a), 0, stream>>>(a, of_tokens, rows);
    return cudaGetLastError();
  });
}

cudaError_t launch_expert_sum(const ExpertRows& a, const void* rows, void* out, cudaStream_t stream) {
  if (a.tokens == 0) return cudaSuccess;
  return with_type(a.type, [&](auto type) {
    expert_sum_kernel<decltype(type)::value>
        <<<static_cast<unsigned>(a.tokens), row_threads(a), 0, stream>>>(a, rows, out);
    return cudaGetLastError();
  });
}

cudaError_t launch_expert_sum_gradient(const ExpertRows& a, const void* upstream, const void* rows, void* row_gradients,
                                       void* weight_gradients, cudaStream_t stream) {
  if (a.tokens == 0) return cudaSuccess;
  return with_type(a.type, [&](auto type) {
    expert_sum_gradient_kernel<decltype(type)::value><<<static_cast<unsigned>(a.tokens), row_threads(a), 0, stream>>>(
        a, upstream, rows, row_gradients, weight_gradients);
    return cudaGetLastError();
  });
}

}  // namespace dslaunch::kernels
