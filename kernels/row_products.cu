// A warp computes one output, or two where there are many rows, for all rows. Its lanes read the matrix in accesses of
// 16 bytes, several of which are always under way, the first ones before the rows are there; the rows come from the L1
// cache, where all warps of a multiprocessor find them.
#include "kernels/row_products.h"

#include "kernels/eight_elements.cuh"
#include "kernels/overlapped_launch.h"
#include "kernels/with_type.cuh"

namespace dslaunch::kernels {
namespace {

constexpr int kWarp = 32, kWarps = 4;
constexpr size_t kStride = kWarp * kEach;  // columns that a warp reads at once

// What is read once does not stay in the L1 cache.
template <ElementType kType>
__device__ inline Packed8<kType> load8_once(const void* values, size_t i) {
  const auto* from = reinterpret_cast<const uint4*>(static_cast<const char*>(values) + i * kBytesOf<kType>);
  Packed8<kType> out;
  out.words[0] = __ldcs(from);
  if constexpr (kType == ElementType::kFloat32) out.words[1] = __ldcs(from + 1);
  return out;
}

// What a lane reads of a matrix, several accesses ahead of what it has added.
template <ElementType kType, int kRows, int kOutputs>
struct Products {
  static constexpr int kAhead = (kType == ElementType::kFloat32 ? 4 : 8) / kOutputs;
  const RowProducts& p;
  const void* weight;
  size_t outputs[kOutputs];
  Packed8<kType> ahead[kAhead][kOutputs];
  float sums[kOutputs][kRows] = {};

  __device__ void load(int slot, size_t column) {
    if (column >= p.columns) return;
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) ahead[slot][o] = load8_once<kType>(weight, outputs[o] * p.columns + column);
  }

  __device__ void add(int slot, size_t column) {
    float own[kOutputs][kEach];
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) unpack8<kType>(ahead[slot][o], own[o]);
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      float input[kEach];
      load8_wide<kType>(p.input, row * p.columns + column, input);
#pragma unroll
      for (int o = 0; o < kOutputs; ++o) {
#pragma unroll
        for (int k = 0; k < kEach; ++k) sums[o][row] += input[k] * own[o][k];
      }
    }
  }
};

// Outputs of a part, filled up to what warps compute.
template <int kOutputs>
__host__ __device__ inline size_t padded(size_t outputs) {
  return (outputs + kOutputs - 1) / kOutputs * kOutputs;
}

template <ElementType kType, int kRows, int kOutputs>
__global__ void __launch_bounds__(kWarp* kWarps, kRows > 6 ? 3 : 4) row_products_kernel(const RowProducts p) {
  let_next_kernel_start();
  const size_t lane = threadIdx.x % kWarp;
  size_t first = (static_cast<size_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp) * kOutputs;
  int number = 0;
  while (number < p.num_parts && first >= padded<kOutputs>(p.parts[number].outputs)) {
    first -= padded<kOutputs>(p.parts[number++].outputs);
  }
  if (number == p.num_parts) return;  // others wait for earlier kernels
  const RowProducts::Part part = p.parts[number];
  using Own = Products<kType, kRows, kOutputs>;
  Own own{p, part.weight};
#pragma unroll
  for (int o = 0; o < kOutputs; ++o) own.outputs[o] = min(first + o, part.outputs - 1);
#pragma unroll
  for (int slot = 0; slot < Own::kAhead; ++slot) own.load(slot, lane * kEach + slot * kStride);
  wait_for_earlier_kernels();
  constexpr size_t kRound = Own::kAhead * kStride;
  size_t column = lane * kEach, left = p.columns;
  for (; left >= kRound; left -= kRound, column += kRound) {
#pragma unroll
    for (int slot = 0; slot < Own::kAhead; ++slot) {
      own.add(slot, column + slot * kStride);
      own.load(slot, column + slot * kStride + kRound);
    }
  }
#pragma unroll
  for (int slot = 0; slot < Own::kAhead; ++slot) {
    if (column + slot * kStride < p.columns) own.add(slot, column + slot * kStride);
  }
#pragma unroll
  for (int o = 0; o < kOutputs; ++o) {
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      float sum = own.sums[o][row];
      for (int distance = kWarp / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, distance);
      if (lane == 0 && first + o < part.outputs) {
        if (part.bias != nullptr) sum += load_element<kType>(part.bias, first + o);
        store_element<kType>(part.out, row * part.outputs + first + o, sum);
      }
    }
  }
}

template <ElementType kType, int kRows>
cudaError_t launch_rows(const RowProducts& p, cudaStream_t stream) {
  constexpr int kOutputs = kRows > 2 ? 2 : 1;
  constexpr size_t kOfBlock = kWarps * kOutputs;
  size_t outputs = 0;
  for (int i = 0; i < p.num_parts; ++i) outputs += padded<kOutputs>(p.parts[i].outputs);
  const auto blocks = static_cast<unsigned>((outputs + kOfBlock - 1) / kOfBlock);
  void* parameters[] = {const_cast<RowProducts*>(&p)};
  return launch_overlapped(reinterpret_cast<const void*>(row_products_kernel<kType, kRows, kOutputs>), dim3(blocks),
                           kWarp * kWarps, 0, stream, parameters, p.overlaps);
}

template <ElementType kType, int kRows = kMaxProductRows>
cudaError_t launch_with_rows(const RowProducts& p, cudaStream_t stream) {
  if constexpr (kRows > 1) {
    if (p.rows < kRows) return launch_with_rows<kType, kRows - 1>(p, stream);
  }
  return launch_rows<kType, kRows>(p, stream);
}

}  // namespace

bool row_products_fit(const RowProducts& products) {
  bool fits = products.rows >= 1 && products.rows <= kMaxProductRows && products.columns % kEach == 0 &&
              on_16_bytes(products.input);
  for (int i = 0; i < products.num_parts; ++i) fits = fits && on_16_bytes(products.parts[i].weight);
  return fits;
}

cudaError_t launch_row_products(const RowProducts& products, cudaStream_t stream) {
  return with_type(products.type, [&](auto type) { return launch_with_rows<decltype(type)::value>(products, stream); });
}

}  // namespace dslaunch::kernels
