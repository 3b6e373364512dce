#undef NDEBUG  // a label out of range ends the job in release builds too, as PyTorch's does
#include <cuda_pipeline_primitives.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/block_pair_sum.cuh"
#include "kernels/cross_entropy.h"
#include "kernels/eight_elements.cuh"
#include "kernels/with_type.cuh"

namespace dslaunch::kernels {
namespace {

constexpr int kTotalThreads = 1024;
constexpr int kLongRowThreads = 1024;
constexpr size_t kLongRow = 16384;  // classes from which a row keeps all those threads busy
constexpr float kInfinity = __builtin_huge_valf();

constexpr float kLog2OfE = 1.4426950408889634F;

// It flushes denormals, which __expf takes several instructions to keep.
__device__ inline float power_of_two(float exponent) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(exponent));
  return out;
}

// For 16-bit types the error of the fast exponential is far below the rounding of the logits themselves.
template <ElementType kType>
__device__ inline float exponential(float value) {
  return kType == ElementType::kFloat32 ? expf(value) : power_of_two(value * kLog2OfE);
}

// exponential(x - shift) for many x in fewer instructions, with the rounding of the shift in all of them.
template <ElementType kType>
class ShiftedExponential {
 public:
  __device__ explicit ShiftedExponential(float shift)
      : shift_(kType == ElementType::kFloat32 ? shift : shift * kLog2OfE) {}
  __device__ float operator()(float x) const {
    return kType == ElementType::kFloat32 ? expf(x - shift_) : power_of_two(fmaf(x, kLog2OfE, -shift_));
  }

 private:
  float shift_;
};

// Groups of eight elements that a thread has in flight at once.
constexpr int kEights = 2;

template <ElementType kType>
constexpr size_t kElementBytes = kType == ElementType::kFloat32 ? 4 : 2;

// A row's elements: a head before the first 16-byte boundary, groups of eight, a tail. Rows with an odd number of
// classes start at any alignment. The head is processed element by element, and so is a row whose gradient has another
// alignment.
template <ElementType kType>
struct RowSpan {
  __device__ RowSpan(const void* row, size_t count) : count(count) {
    const size_t head_bytes = (16 - reinterpret_cast<uintptr_t>(row) % 16) % 16;
    head = min(count, head_bytes / kElementBytes<kType>);
    num_eights = (count - head) / kEach;
  }
  // The k-th element outside the groups of eight.
  __device__ size_t outside(size_t k) const { return k < head ? k : k + num_eights * kEach; }
  __device__ size_t num_outside() const { return count - num_eights * kEach; }

  size_t count, head, num_eights;
};

template <ElementType kType>
__device__ inline const char* row_of(const void* matrix, size_t row, size_t stride) {
  return static_cast<const char*>(matrix) + row * stride * kElementBytes<kType>;
}

// The sum of exp(x - largest) over the elements so far: a softmax's denominator in one pass.
struct RunningSum {
  float largest = -kInfinity;
  float sum = 0.0F;

  // Avoids exp(-inf - -inf) before the first finite element.
  __device__ static float reference(float largest) { return largest == -kInfinity ? 0.0F : largest; }

  template <ElementType kType>
  __device__ void join(const RunningSum& other) {
    const float both = fmaxf(largest, other.largest), from = reference(both);
    sum = sum * exponential<kType>(largest - from) + other.sum * exponential<kType>(other.largest - from);
    largest = both;
  }
  // The same in the lanes of a warp, with one exponential each.
  template <ElementType kType>
  __device__ void join_warp() {
    float most = largest;
    for (int distance = 16; distance > 0; distance /= 2) {
      most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFU, most, distance));
    }
    sum *= exponential<kType>(largest - reference(most));
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, distance);
    largest = most;
  }
  template <ElementType kType>
  __device__ void add(const float (&values)[kEights][kEach]) {
    float most = largest;
#pragma unroll
    for (int v = 0; v < kEights; ++v) {
#pragma unroll
      for (int k = 0; k < kEach; ++k) most = fmaxf(most, values[v][k]);
    }
    const float from = reference(most);
    const ShiftedExponential<kType> shifted(from);
    float more = 0.0F;
#pragma unroll
    for (int v = 0; v < kEights; ++v) {
#pragma unroll
      for (int k = 0; k < kEach; ++k) more += shifted(values[v][k]);
    }
    sum = sum * exponential<kType>(largest - from) + more;
    largest = most;
  }
};

template <ElementType kType>
__device__ inline RunningSum joined_block(RunningSum value) {
  __shared__ RunningSum warps[32];
  value.join_warp<kType>();
  const unsigned num_warps = blockDim.x / 32, lane = threadIdx.x % 32;
  if (num_warps == 1) return value;
  if (lane == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = lane < num_warps ? warps[lane] : RunningSum();
  value.join_warp<kType>();
  return value;
}

// The logarithm of the sum of a row's exponentials, computed by its block; in every thread.
template <ElementType kType>
__device__ inline float log_sum_of(const char* row, size_t classes) {
  const RowSpan<kType> span(row, classes);
  const char* eights = row + span.head * kElementBytes<kType>;
  RunningSum running;
#pragma unroll 2
  for (size_t first = threadIdx.x; first < span.num_eights; first += kEights * blockDim.x) {
    float values[kEights][kEach];
#pragma unroll
    for (int v = 0; v < kEights; ++v) {
      const size_t eight = first + v * blockDim.x;
      if (eight < span.num_eights) {
        load8_wide<kType>(eights, eight * kEach, values[v]);
      } else {
#pragma unroll
        for (int k = 0; k < kEach; ++k) values[v][k] = -kInfinity;
      }
    }
    running.add<kType>(values);
  }
  for (size_t k = threadIdx.x; k < span.num_outside(); k += blockDim.x) {
    RunningSum one;
    one.largest = load_element<kType>(row, span.outside(k));
    one.sum = 1.0F;
    running.join<kType>(one);
  }
  running = joined_block<kType>(running);
  return running.largest + logf(running.sum);
}

// What a row's block writes of the gradient; `label` -1: the row does not count.
template <ElementType kType>
__device__ inline void write_gradient(const char* row, size_t classes, int64_t label, float log_sum, float factor,
                                      char* out, bool aligned) {
  const bool counts = label >= 0;
  RowSpan<kType> span(row, classes);
  if (!aligned) span.head = classes, span.num_eights = 0;
  const char* eights = row + span.head * kElementBytes<kType>;
  char* out_eights = out + span.head * kElementBytes<kType>;
  const ShiftedExponential<kType> probability(log_sum);
  const size_t label_place = static_cast<size_t>(label) - span.head;  // among the eights; it may lie outside them
#pragma unroll 4
  for (size_t eight = threadIdx.x; eight < span.num_eights; eight += blockDim.x) {
    float values[kEach] = {};
    if (counts) {
      load8_wide<kType>(eights, eight * kEach, values);
#pragma unroll
      for (int k = 0; k < kEach; ++k) values[k] = probability(values[k]);
      if (eight == label_place / kEach) {
#pragma unroll
        for (int k = 0; k < kEach; ++k) values[k] -= label_place % kEach == k ? 1.0F : 0.0F;
      }
#pragma unroll
      for (int k = 0; k < kEach; ++k) values[k] *= factor;
    }
    store8_wide<kType>(out_eights, eight * kEach, values);
  }
  for (size_t k = threadIdx.x; k < span.num_outside(); k += blockDim.x) {
    const size_t c = span.outside(k);
    const float one = static_cast<int64_t>(c) == label ? 1.0F : 0.0F;
    store_element<kType>(out, c, counts ? (probability(load_element<kType>(row, c)) - one) * factor : 0.0F);
  }
}

// -1 for a row that does not count.
__device__ inline int64_t label_of(const CrossEntropyArguments& a, size_t row) {
  const int64_t label = a.labels[row];
  if (label == a.ignore_index) return -1;
  assert(label >= 0 && label < static_cast<int64_t>(a.classes) && "a label that is not a class");
  return label;
}

// One block per row.
template <ElementType kType>
__global__ void cross_entropy_kernel(const CrossEntropyArguments a, float* losses, float* log_sums) {
  const size_t index = blockIdx.x;
  const int64_t label = label_of(a, index);
  if (label < 0) {
    if (threadIdx.x == 0) losses[index] = log_sums[index] = 0.0F;
    return;
  }
  const char* row = row_of<kType>(a.logits, index, a.stride);
  const float log_sum = log_sum_of<kType>(row, a.classes);
  if (threadIdx.x != 0) return;
  log_sums[index] = log_sum;
  losses[index] = log_sum - load_element<kType>(row, static_cast<size_t>(label));
}

// One block: there are few rows compared with their classes.
__global__ void __launch_bounds__(kTotalThreads)
    cross_entropy_total_kernel(const CrossEntropyArguments a, const float* losses, bool mean, float* total,
                               float* weight) {
  __shared__ double sums[kTotalThreads];
  __shared__ unsigned long long counts[kTotalThreads];
  double sum = 0.0;
  unsigned long long count = 0;
  for (size_t row = threadIdx.x; row < a.rows; row += kTotalThreads) {
    sum += losses[row];
    count += a.labels[row] != a.ignore_index ? 1 : 0;
  }
  sums[threadIdx.x] = sum;
  counts[threadIdx.x] = count;
  for (unsigned half = kTotalThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x >= half) continue;
    sums[threadIdx.x] += sums[threadIdx.x + half];
    counts[threadIdx.x] += counts[threadIdx.x + half];
  }
  if (threadIdx.x != 0) return;
  const auto counted = static_cast<double>(counts[0]);
  *total = static_cast<float>(mean ? sums[0] / counted : sums[0]);
  *weight = mean ? static_cast<float>(1.0 / counted) : 1.0F;
}

template <ElementType kType>
__global__ void cross_entropy_gradient_kernel(const CrossEntropyArguments a, const float* log_sums, const float* weight,
                                              const float* upstream, void* gradient, bool aligned) {
  const size_t index = blockIdx.x;
  write_gradient<kType>(row_of<kType>(a.logits, index, a.stride), a.classes, label_of(a, index), log_sums[index],
                        *weight * *upstream, const_cast<char*>(row_of<kType>(gradient, index, a.stride)), aligned);
}

// The loss of the row at `from`, which only its block reads, and its gradient, written to `to`, which may be the same.
template <ElementType kType>
__device__ inline void row_to_gradient(const CrossEntropyArguments& a, size_t index, int64_t label, float factor,
                                       const char* from, char* to, float* losses, float* log_sums) {
  float log_sum = 0.0F;
  if (label >= 0) {
    // Before the block's threads have met for the sum: after that others overwrite the logit.
    const float of_label = load_element<kType>(from, static_cast<size_t>(label));
    log_sum = log_sum_of<kType>(from, a.classes);
    if (threadIdx.x == 0) losses[index] = log_sum - of_label;
  } else if (threadIdx.x == 0) {
    losses[index] = 0.0F;
  }
  if (threadIdx.x == 0) log_sums[index] = log_sum;
  write_gradient<kType>(from, a.classes, label, log_sum, factor, to, /*aligned=*/true);
}

// The second reading of a row comes from the L2 cache, as long as the rows of all blocks fit there.
template <ElementType kType>
__global__ void __launch_bounds__(kLongRowThreads)
    cross_entropy_to_gradient_kernel(const CrossEntropyArguments a, const float* weight, float* losses, float* log_sums,
                                     void* logits) {
  const size_t index = blockIdx.x;
  char* row = const_cast<char*>(row_of<kType>(logits, index, a.stride));
  row_to_gradient<kType>(a, index, label_of(a, index), *weight, row, row, losses, log_sums);
}

// Begins to copy a row into shared memory; both are 16-byte aligned.
template <ElementType kType>
__device__ inline void begin_copy(char* to, const char* row, size_t classes) {
  const RowSpan<kType> span(row, classes);
  for (size_t eight = threadIdx.x; eight < span.num_eights; eight += blockDim.x) {
    const size_t at = eight * kEach * kElementBytes<kType>;
#pragma unroll
    for (size_t part = 0; part < kEach * kElementBytes<kType>; part += 16) {
      __pipeline_memcpy_async(to + at + part, row + at + part, 16);
    }
  }
  for (size_t k = threadIdx.x; k < span.num_outside(); k += blockDim.x) {
    const size_t at = span.outside(k) * kElementBytes<kType>;
    memcpy(to + at, row + at, kElementBytes<kType>);
  }
}

// The same for long rows: while a block works on a row in shared memory its next row is copied there, so that each is
// read from memory once, and memory is busy all the time.
template <ElementType kType>
__global__ void __launch_bounds__(kLongRowThreads, 1)
    cross_entropy_to_gradient_staged_kernel(const CrossEntropyArguments a, const float* weight, float* losses,
                                            float* log_sums, void* logits, size_t staged_bytes) {
  extern __shared__ uint4 staged_rows[];
  char* const staged = reinterpret_cast<char*>(staged_rows);
  const float factor = *weight;
  const auto begin = [&](size_t index, size_t place) {
    if (index < a.rows && label_of(a, index) >= 0) {
      begin_copy<kType>(staged + place * staged_bytes, row_of<kType>(logits, index, a.stride), a.classes);
    }
    __pipeline_commit();
  };
  begin(blockIdx.x, 0);
  for (size_t index = blockIdx.x, place = 0; index < a.rows; index += gridDim.x, place ^= 1) {
    begin(index + gridDim.x, place ^ 1);
    __pipeline_wait_prior(1);
    __syncthreads();  // every thread's part of the row is there
    row_to_gradient<kType>(a, index, label_of(a, index), factor, staged + place * staged_bytes,
                           const_cast<char*>(row_of<kType>(logits, index, a.stride)), losses, log_sums);
    __syncthreads();  // it has been read
  }
}

// Threads of a row's block: few classes do not keep many threads busy.
unsigned row_threads(size_t classes) {
  return classes <= 1024 ? 32 : classes <= 8192 ? 128 : 512;
}

// Two blocks of long rows on a multiprocessor: rows of 100 kB on all of an H100 take half of its L2 cache.
unsigned cached_row_threads(size_t classes) {
  return classes <= kLongRow ? row_threads(classes) : kLongRowThreads;
}

struct Device {
  int multiprocessors = 0, block_shared_bytes = 0;
};

cudaError_t get_device(Device& out) {
  int device = 0;
  cudaError_t result = cudaGetDevice(&device);
  if (result == cudaSuccess) {
    result = cudaDeviceGetAttribute(&out.multiprocessors, cudaDevAttrMultiProcessorCount, device);
  }
  if (result == cudaSuccess) {
    result = cudaDeviceGetAttribute(&out.block_shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  return result;
}

// Of a row in shared memory.
template <ElementType kType>
size_t staged_bytes_of(size_t classes) {
  return (classes * kElementBytes<kType> + 15) / 16 * 16;
}

template <ElementType kType>
bool can_stage(const CrossEntropyArguments& a, const void* logits, const Device& device) {
  constexpr size_t kReserved = 1024;  // what the kernel's variables take, and more
  return a.classes > kLongRow && on_16_bytes(logits) && a.stride * kElementBytes<kType> % 16 == 0 &&
         2 * staged_bytes_of<kType>(a.classes) + kReserved <= static_cast<size_t>(device.block_shared_bytes);
}

template <ElementType kType>
cudaError_t launch_staged(const CrossEntropyArguments& a, const float* weight, float* losses, float* log_sums,
                          void* logits, const Device& device, cudaStream_t stream) {
  const auto kernel = cross_entropy_to_gradient_staged_kernel<kType>;
  const size_t row_bytes = staged_bytes_of<kType>(a.classes);
  const cudaError_t result =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(2 * row_bytes));
  if (result != cudaSuccess) return result;
  const size_t blocks = std::min(a.rows, static_cast<size_t>(device.multiprocessors));
  kernel<<<static_cast<unsigned>(blocks), kLongRowThreads, 2 * row_bytes, stream>>>(a, weight, losses, log_sums, logits,
                                                                                    row_bytes);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_cross_entropy(const CrossEntropyArguments& a, float* losses, float* log_sums, cudaStream_t stream) {
  if (a.rows == 0) return cudaSuccess;
  return with_type(a.type, [&](auto type) {
    cross_entropy_kernel<type>
        <<<static_cast<unsigned>(a.rows), row_threads(a.classes), 0, stream>>>(a, losses, log_sums);
    return cudaGetLastError();
  });
}

cudaError_t launch_cross_entropy_total(const CrossEntropyArguments& a, const float* losses, bool mean, float* total,
                                       float* weight, cudaStream_t stream) {
  cross_entropy_total_kernel<<<1, kTotalThreads, 0, stream>>>(a, losses, mean, total, weight);
  return cudaGetLastError();
}

cudaError_t launch_cross_entropy_gradient(const CrossEntropyArguments& a, const float* log_sums, const float* weight,
                                          const float* upstream, void* gradient, cudaStream_t stream) {
  if (a.rows == 0 || a.classes == 0) return cudaSuccess;
  const bool aligned = (reinterpret_cast<uintptr_t>(a.logits) - reinterpret_cast<uintptr_t>(gradient)) % 16 == 0;
  return with_type(a.type, [&](auto type) {
    cross_entropy_gradient_kernel<type><<<static_cast<unsigned>(a.rows), row_threads(a.classes), 0, stream>>>(
        a, log_sums, weight, upstream, gradient, aligned);
    return cudaGetLastError();
  });
}

cudaError_t launch_cross_entropy_to_gradient(const CrossEntropyArguments& a, const float* weight, float* losses,
                                             float* log_sums, void* logits, cudaStream_t stream) {
  if (a.rows == 0 || a.classes == 0) return cudaSuccess;
  Device device;
  const cudaError_t result = get_device(device);
  if (result != cudaSuccess) return result;
  return with_type(a.type, [&](auto type) {
    if (can_stage<type>(a, logits, device)) {
      return launch_staged<type>(a, weight, losses, log_sums, logits, device, stream);
    }
    cross_entropy_to_gradient_kernel<type><<<static_cast<unsigned>(a.rows), cached_row_threads(a.classes), 0, stream>>>(
        a, weight, losses, log_sums, logits);
    return cudaGetLastError();
  });
}

}  // namespace dslaunch::kernels
