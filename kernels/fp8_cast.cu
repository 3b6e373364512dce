#include <cuda_fp8.h>

#include "kernels/eight_elements.cuh"
#include "kernels/fp8_cast.h"

namespace dslaunch::kernels {
namespace {

constexpr double kSmallestMaximum = 1e-12;  // of zeros
constexpr int kLanes = 32, kWarps = 8, kThreads = kLanes * kWarps;

// Maxima: a lane handles eight columns, a warp every eighth row.
constexpr size_t kBlockColumns = kLanes * kEach;
constexpr size_t kWantedBlocks = 1024;

// Cast: a tile of the matrix. A thread has four rows of eight columns, so that four values of a transposed row are one
// word.
constexpr int kTileRows = 128, kTileColumns = 64, kRowsEach = 4, kGroups = kTileColumns / kEach;
constexpr int kWords = kTileRows / kRowsEach;  // of a column
static_assert(kGroups * kWords == kThreads);

// Where the maxima of what is scaled as a whole lie.
struct Maxima {
  uint32_t* tensor;
  uint32_t* rows;
  uint32_t* columns;
};

__host__ __device__ inline Maxima maxima_of(const Fp8CastArguments& arguments) {
  uint32_t* const first = arguments.maxima;
  return {first, first + 1, first + 1 + arguments.rows};
}

__device__ inline bool wants_tensor(const Fp8CastArguments& of) {
  return (of.plain.values != nullptr && !of.plain.by_row) || (of.transposed.values != nullptr && !of.transposed.by_row);
}

// Magnitudes of bf16 compare as their bits do, NaN above all.
__device__ inline uint32_t larger_half(uint32_t pair) {
  return max(pair & 0xffffU, pair >> 16);
}

// The largest of each column of the block, and of the block.
__device__ inline void add_columns(const uint32_t (&pairs)[kEach / 2], const Fp8CastArguments& of, bool by_column) {
  __shared__ uint32_t shared[kWarps][kBlockColumns / 2];
  const Maxima maxima = maxima_of(of);
#pragma unroll
  for (int k = 0; k < kEach / 2; ++k) shared[threadIdx.y][threadIdx.x * (kEach / 2) + k] = pairs[k];
  __syncthreads();
  const unsigned in_block = threadIdx.y * kLanes + threadIdx.x;
  uint32_t pair = 0;
  if (in_block < kBlockColumns / 2) {
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) pair = __vmaxu2(pair, shared[warp][in_block]);
    const size_t column = blockIdx.x * kBlockColumns + 2 * in_block;
    if (by_column && column < of.columns) {
      atomicMax(maxima.columns + column, pair & 0xffffU);
      atomicMax(maxima.columns + column + 1, pair >> 16);
    }
  }
  if (!wants_tensor(of)) return;
  const uint32_t of_warp = __reduce_max_sync(0xffffffffU, larger_half(pair));
  if (threadIdx.x == 0 && of_warp > 0) atomicMax(maxima.tensor, of_warp);
}

__global__ void __launch_bounds__(kThreads) fp8_maxima_kernel(const Fp8CastArguments of, size_t rows_each) {
  const size_t first = blockIdx.x * kBlockColumns + threadIdx.x * kEach;
  const size_t begin = blockIdx.y * rows_each, end = min(of.rows, begin + rows_each);
  const bool by_row = of.plain.values != nullptr && of.plain.by_row;
  const bool by_column = of.transposed.values != nullptr && of.transposed.by_row;
  const Maxima maxima = maxima_of(of);
  uint32_t pairs[kEach / 2] = {};
#pragma unroll 4
  for (size_t row = begin + threadIdx.y; row < end; row += kWarps) {
    Packed8<ElementType::kBFloat16> values;
    if (first < of.columns) values = load8_packed<ElementType::kBFloat16>(of.matrix, row * of.columns + first);
    const uint4 v = values.words[0];
    const uint32_t words[kEach / 2] = {v.x & 0x7fff7fffU, v.y & 0x7fff7fffU, v.z & 0x7fff7fffU, v.w & 0x7fff7fffU};
#pragma unroll
    for (int k = 0; k < kEach / 2; ++k) pairs[k] = __vmaxu2(pairs[k], words[k]);
    if (!by_row) continue;
    const uint32_t pair = __vmaxu2(__vmaxu2(words[0], words[1]), __vmaxu2(words[2], words[3]));
    const uint32_t of_warp = __reduce_max_sync(0xffffffffU, larger_half(pair));
    if (threadIdx.x == 0) atomicMax(maxima.rows + row, of_warp);
  }
  if (by_column || wants_tensor(of)) add_columns(pairs, of, by_column);
}

template <bool kE5m2>
__device__ inline float scale_of(uint32_t maximum, bool power_of_two) {
  constexpr double kLargest = kE5m2 ? 57344.0 : 448.0;
  const double magnitude = __uint_as_float(maximum << 16);
  // A NaN stays one, or makes the scale infinite: what was not finite is not finite in a GEMM either.
  const auto scale = static_cast<float>(kLargest / (magnitude < kSmallestMaximum ? kSmallestMaximum : magnitude));
  return power_of_two ? __uint_as_float(__float_as_uint(scale) & 0x7f800000U) : scale;
}

// Four values, the first in the lowest byte.
template <bool kE5m2>
__device__ inline uint32_t pack4(float a, float b, float c, float d) {
  constexpr auto kType = kE5m2 ? __NV_E5M2 : __NV_E4M3;
  const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, kType);
  const uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(c, d), __NV_SATFINITE, kType);
  return low | high << 16;
}

// The scales of a tile's rows and columns; what is outside of the matrix has none that counts.
struct TileScales {
  float rows[kTileRows], columns[kTileColumns];
};

// By all threads of a warp.
__device__ inline uint32_t tensor_maximum(const Fp8CastArguments& of) {
  static_assert(kFp8MaximumSlots == 2 * kLanes);
  if (of.noted == nullptr) return wants_tensor(of) ? *maxima_of(of).tensor : 0;
  const uint32_t* own = of.noted + threadIdx.x % kLanes * kFp8SlotStride;
  return __reduce_max_sync(0xffffffffU, max(own[0], own[kLanes * kFp8SlotStride]));
}

template <bool kE5m2>
__device__ inline void load_scales(const Fp8CastArguments& of, size_t first_row, size_t first_column,
                                   TileScales& scales) {
  const Maxima maxima = maxima_of(of);
  const uint32_t whole = tensor_maximum(of);
  const unsigned i = threadIdx.x;
  if (i < kTileRows && of.plain.values != nullptr) {
    const size_t row = min(first_row + i, of.rows - 1);
    scales.rows[i] = scale_of<kE5m2>(of.plain.by_row ? maxima.rows[row] : whole, of.power_of_two);
    const bool writes =
        of.plain.by_row ? blockIdx.x == 0 && first_row + i < of.rows : blockIdx.x == 0 && blockIdx.y == 0 && i == 0;
    if (writes) of.plain.inverse_scales[of.plain.by_row ? row : 0] = __frcp_rn(scales.rows[i]);
  }
  if (i >= kTileRows && i < kTileRows + kTileColumns && of.transposed.values != nullptr) {
    const unsigned k = i - kTileRows;
    const size_t column = min(first_column + k, of.columns - 1);
    scales.columns[k] = scale_of<kE5m2>(of.transposed.by_row ? maxima.columns[column] : whole, of.power_of_two);
    const bool writes = of.transposed.by_row ? blockIdx.y == 0 && first_column + k < of.columns
                                             : blockIdx.x == 0 && blockIdx.y == 0 && k == 0;
    if (writes) of.transposed.inverse_scales[of.transposed.by_row ? column : 0] = __frcp_rn(scales.columns[k]);
  }
}

// tile[column][word of four rows] -> the rows of the transposed matrix, 16 bytes a thread.
__device__ inline void store_transposed(const Fp8CastArguments& of, size_t first_row, size_t first_column,
                                        const uint32_t (&tile)[kTileColumns][kWords + 1]) {
  constexpr int kChunks = kTileRows / 16;
  const unsigned chunk = threadIdx.x % kChunks;
  const size_t row = first_row + 16 * chunk;
  if (row >= of.stride) return;
  for (unsigned k = threadIdx.x / kChunks; k < kTileColumns && first_column + k < of.columns; k += kThreads / kChunks) {
    const uint32_t* from = tile[k] + 4 * chunk;
    auto* to = static_cast<char*>(of.transposed.values) + (first_column + k) * of.stride + row;
    *reinterpret_cast<uint4*>(to) = make_uint4(from[0], from[1], from[2], from[3]);
  }
}

template <bool kE5m2>
__global__ void __launch_bounds__(kThreads) fp8_cast_kernel(const Fp8CastArguments of) {
  __shared__ TileScales scales;
  __shared__ uint32_t tile[kTileColumns][kWords + 1];
  const size_t first_row = blockIdx.y * static_cast<size_t>(kTileRows);
  const size_t first_column = blockIdx.x * static_cast<size_t>(kTileColumns);
  const unsigned group = threadIdx.x % kGroups, word = threadIdx.x / kGroups;
  const size_t column = first_column + group * kEach, row = first_row + word * kRowsEach;
  Packed8<ElementType::kBFloat16> packed[kRowsEach];
#pragma unroll
  for (int i = 0; i < kRowsEach; ++i) {
    if (row + i < of.rows && column < of.columns) {
      packed[i] = load8_packed<ElementType::kBFloat16>(of.matrix, (row + i) * of.columns + column);
    }
  }
  load_scales<kE5m2>(of, first_row, first_column, scales);
  __syncthreads();
  float values[kRowsEach][kEach];
#pragma unroll
  for (int i = 0; i < kRowsEach; ++i) {
    unpack8<ElementType::kBFloat16>(packed[i], values[i]);
    if (of.plain.values == nullptr || row + i >= of.rows || column >= of.columns) continue;
    const float scale = scales.rows[word * kRowsEach + i];
    const float(&v)[kEach] = values[i];
    const uint2 eight{pack4<kE5m2>(v[0] * scale, v[1] * scale, v[2] * scale, v[3] * scale),
                      pack4<kE5m2>(v[4] * scale, v[5] * scale, v[6] * scale, v[7] * scale)};
    *reinterpret_cast<uint2*>(static_cast<char*>(of.plain.values) + (row + i) * of.columns + column) = eight;
  }
  if (of.transposed.values == nullptr) return;
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const float scale = scales.columns[group * kEach + k];
    float scaled[kRowsEach];  // zeros past the last row, also with a scale that is not a number
#pragma unroll
    for (int i = 0; i < kRowsEach; ++i) scaled[i] = row + i < of.rows ? values[i][k] * scale : 0.0F;
    tile[group * kEach + k][word] = pack4<kE5m2>(scaled[0], scaled[1], scaled[2], scaled[3]);
  }
  __syncthreads();
  store_transposed(of, first_row, first_column, tile);
}

unsigned blocks_of(size_t count, size_t each) {
  return static_cast<unsigned>((count + each - 1) / each);
}

cudaError_t launch_maxima(const Fp8CastArguments& arguments, cudaStream_t stream) {
  const unsigned across = blocks_of(arguments.columns, kBlockColumns);
  const size_t wanted = (kWantedBlocks + across - 1) / across;
  const size_t rows_each = (arguments.rows + wanted - 1) / wanted;
  const size_t in_warps = (rows_each + kWarps - 1) / kWarps * kWarps;
  fp8_maxima_kernel<<<dim3(across, blocks_of(arguments.rows, in_warps)), dim3(kLanes, kWarps), 0, stream>>>(arguments,
                                                                                                            in_warps);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_fp8_cast(const Fp8CastArguments& arguments, cudaStream_t stream) {
  if (arguments.noted == nullptr) {
    if (const auto result = launch_maxima(arguments, stream); result != cudaSuccess) return result;
  }
  const dim3 grid(blocks_of(arguments.columns, kTileColumns), blocks_of(arguments.rows, kTileRows));
  if (arguments.is_e5m2) {
    fp8_cast_kernel<true><<<grid, kThreads, 0, stream>>>(arguments);
  } else {
    fp8_cast_kernel<false><<<grid, kThreads, 0, stream>>>(arguments);
  }
  return cudaGetLastError();
}

}  // namespace dslaunch::kernels
