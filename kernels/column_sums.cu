#include "kernels/column_sums.h"
#include "kernels/eight_elements.cuh"
#include "kernels/with_type.cuh"

namespace dslaunch::kernels {
namespace {

// A block is a stack of warps: a lane handles eight columns, a warp every eighth row.
constexpr int kLanes = 32, kWarps = 8;
constexpr size_t kBlockColumns = kLanes * kEach;
constexpr size_t kWantedBlocks = 512;

// Totals: eight columns, a 32-byte sector of each row, and many rows at a time.
constexpr int kTotalColumns = 8, kTotalRows = 64;

// The sums of a block's warps; every thread calls it.
__device__ inline void store_partials(const float (&sums)[kEach], size_t columns, float* partials) {
  __shared__ float shared[kWarps][kBlockColumns];
#pragma unroll
  for (int k = 0; k < kEach; ++k) shared[threadIdx.y][threadIdx.x * kEach + k] = sums[k];
  __syncthreads();
  const size_t in_block = threadIdx.y * kLanes + threadIdx.x, column = blockIdx.x * kBlockColumns + in_block;
  if (column >= columns) return;
  float sum = 0.0F;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += shared[warp][in_block];
  partials[blockIdx.y * columns + column] = sum;
}

// kWide: every group of eight elements is 16-byte aligned.
template <ElementType kType, bool kWide>
__global__ void __launch_bounds__(kLanes* kWarps)
    column_partials_kernel(const void* values, size_t rows, size_t columns, size_t rows_each, float* partials) {
  const size_t first = blockIdx.x * kBlockColumns + threadIdx.x * kEach;
  const size_t begin = blockIdx.y * rows_each, end = min(rows, begin + rows_each);
  float sums[kEach] = {};
  if (first < columns) {
#pragma unroll 8
    for (size_t row = begin + threadIdx.y; row < end; row += kWarps) {
      float some[kEach];
      if constexpr (kWide) {
        load8_wide<kType>(values, row * columns + first, some);
      } else {
        load8<kType>(values, row * columns + first, (row + 1) * columns, false, some);
      }
#pragma unroll
      for (int k = 0; k < kEach; ++k) sums[k] += some[k];
    }
  }
  store_partials(sums, columns, partials);
}

// The same sums in the same order, of rows that lie in several matrices.
template <ElementType kType>
__global__ void __launch_bounds__(kLanes* kWarps)
    joined_partials_kernel(const ColumnParts parts, size_t rows, size_t columns, size_t rows_each, void* joined,
                           float* partials) {
  const size_t first = blockIdx.x * kBlockColumns + threadIdx.x * kEach;
  const size_t begin = blockIdx.y * rows_each, end = min(rows, begin + rows_each);
  float sums[kEach] = {};
  if (first < columns) {
    int part = 0;
    while (first >= parts.ends[part]) part += 1;
    const size_t in_part = first - (part == 0 ? 0 : parts.ends[part - 1]), stride = parts.strides[part];
    const void* values = parts.values[part];
    constexpr int kAtOnce = 4;
    for (size_t row = begin + threadIdx.y; row < end; row += kWarps * kAtOnce) {
      Packed8<kType> some[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (row + i * kWarps < end) some[i] = load8_packed<kType>(values, (row + i * kWarps) * stride + in_part);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (row + i * kWarps >= end) break;
        store8_packed<kType>(joined, (row + i * kWarps) * columns + first, some[i]);
        float wide[kEach];
        unpack8<kType>(some[i], wide);
#pragma unroll
        for (int k = 0; k < kEach; ++k) sums[k] += wide[k];
      }
    }
  }
  store_partials(sums, columns, partials);
}

template <ElementType kType>
__global__ void __launch_bounds__(kTotalColumns* kTotalRows)
    column_totals_kernel(const float* partials, size_t num_partials, size_t columns, void* out) {
  const size_t column = blockIdx.x * kTotalColumns + threadIdx.x;
  float sum = 0.0F;
  if (column < columns) {
    for (size_t row = threadIdx.y; row < num_partials; row += kTotalRows) sum += partials[row * columns + column];
  }
  __shared__ float shared[kTotalRows][kTotalColumns];
  shared[threadIdx.y][threadIdx.x] = sum;
  for (unsigned half = kTotalRows / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y < half) shared[threadIdx.y][threadIdx.x] += shared[threadIdx.y + half][threadIdx.x];
  }
  if (threadIdx.y == 0 && column < columns) store_element<kType>(out, column, shared[0][threadIdx.x]);
}

unsigned column_blocks(size_t columns) {
  return static_cast<unsigned>((columns + kBlockColumns - 1) / kBlockColumns);
}

}  // namespace

size_t num_column_partials(size_t rows, size_t columns) {
  const size_t wanted = (kWantedBlocks + column_blocks(columns) - 1) / column_blocks(columns);
  const size_t max_blocks = (rows + kWarps - 1) / kWarps;
  return wanted < max_blocks ? wanted : max_blocks;
}

cudaError_t launch_column_partials(const void* values, ElementType type, size_t rows, size_t columns, float* partials,
                                   cudaStream_t stream) {
  const size_t splits = num_column_partials(rows, columns), rows_each = (rows + splits - 1) / splits;
  const dim3 grid(column_blocks(columns), static_cast<unsigned>(splits)), block(kLanes, kWarps);
  const bool wide = on_16_bytes(values) && columns % kEach == 0;
  return with_type(type, [&](auto constant) {
    const auto kernel = wide ? column_partials_kernel<constant, true> : column_partials_kernel<constant, false>;
    kernel<<<grid, block, 0, stream>>>(values, rows, columns, rows_each, partials);
    return cudaGetLastError();
  });
}

bool joined_columns_fit(const ColumnParts& parts, ElementType type) {
  const size_t bytes = type == ElementType::kFloat32 ? 4 : 2;
  size_t begin = 0;
  for (int i = 0; i < parts.num_parts; ++i) {
    const bool is_cut_well = parts.ends[i] > begin && (parts.ends[i] - begin) % kEach == 0;
    if (!is_cut_well || !on_16_bytes(parts.values[i]) || parts.strides[i] * bytes % 16 != 0) return false;
    begin = parts.ends[i];
  }
  return parts.num_parts > 0;
}

cudaError_t launch_joined_partials(const ColumnParts& parts, ElementType type, size_t rows, void* joined,
                                   float* partials, cudaStream_t stream) {
  const size_t columns = parts.ends[parts.num_parts - 1];
  const size_t splits = num_column_partials(rows, columns), rows_each = (rows + splits - 1) / splits;
  const dim3 grid(column_blocks(columns), static_cast<unsigned>(splits)), block(kLanes, kWarps);
  return with_type(type, [&](auto constant) {
    joined_partials_kernel<constant><<<grid, block, 0, stream>>>(parts, rows, columns, rows_each, joined, partials);
    return cudaGetLastError();
  });
}

cudaError_t launch_column_totals(const float* partials, size_t num_partials, size_t columns, void* out,
                                 ElementType type, cudaStream_t stream) {
  const auto grid = static_cast<unsigned>((columns + kTotalColumns - 1) / kTotalColumns);
  return with_type(type, [&](auto constant) {
    column_totals_kernel<constant>
        <<<grid, dim3(kTotalColumns, kTotalRows), 0, stream>>>(partials, num_partials, columns, out);
    return cudaGetLastError();
  });
}

}  // namespace dslaunch::kernels
