// A block computes 16 outputs for all rows on the tensor cores, whose second operand has room for eight rows: the work
// for each weight is little more than its conversion. Its warps take tiles of columns in turn, each thread 16 bytes of
// two outputs, several of which are under way at once; they add up their sums at the end.
//
// A product over columns may take them in any order, so that each thread's elements of mma.m16n8k16 are columns that
// lie side by side in memory: of a tile, thread t of four has the t-th quarter.
#include "kernels/quantized_products.h"

#include "kernels/eight_elements.cuh"
#include "kernels/overlapped_launch.h"
#include "kernels/quantized_weights.cuh"
#include "kernels/with_type.cuh"

namespace dslaunch::kernels {
namespace {

constexpr int kWarp = 32, kWarps = 8, kThreads = kWarp * kWarps;
constexpr size_t kOutputs = 16;  // of a block
constexpr int kQuad = 4;         // threads that share a row of a tile

template <WeightFormat kFormat>
struct Tile {
  static constexpr bool kHasGroups = kFormat == WeightFormat::kInt4;
  static constexpr int kPairs = kColumnsOfWord<kFormat> / 2;               // of a word
  static constexpr size_t kColumnsOfThread = kColumnsOfWord<kFormat> * 4;  // of 16 bytes
  static constexpr size_t kColumns = kColumnsOfThread * kQuad;
  static constexpr int kAhead = kHasGroups ? 2 : 4;  // tiles under way
  __device__ static size_t bytes_of(size_t columns) { return kHasGroups ? columns / 2 : columns; }
};
static_assert(Tile<WeightFormat::kInt4>::kColumns == kInt4Group);

// What a thread reads of a tile: 16 bytes of outputs g and g + 8, g its group of four.
struct Weights {
  uint4 values[2];
  uint32_t scales[2];  // with groups
};

// sums[i] += the product of weights [16, 16] and rows [16, 8]; the layouts are those of mma.m16n8k16.
template <ElementType kType>
__device__ inline void multiply(float (&sums)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                uint32_t b1) {
  if constexpr (kType == ElementType::kBFloat16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

__device__ inline uint32_t word_of(const uint4& four, int i) {
  return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w;
}

template <WeightFormat kFormat, ElementType kType>
struct Block {
  using Shape = Tile<kFormat>;
  const QuantizedProducts& p;
  const QuantizedMatrix& matrix;
  size_t outputs[2];  // of this thread
  size_t row;         // of the input
  size_t column;      // in a tile

  __device__ Weights load(size_t tile) const {
    Weights out{};
    const size_t first = tile * Shape::kColumns + column;
    if (first >= p.columns) return out;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const char* of_output = static_cast<const char*>(matrix.values) + outputs[i] * Shape::bytes_of(p.columns);
      out.values[i] = __ldcs(reinterpret_cast<const uint4*>(of_output + Shape::bytes_of(first)));
      if constexpr (Shape::kHasGroups) {
        out.scales[i] = static_cast<const uint32_t*>(matrix.scales)[outputs[i] * (p.columns / kInt4Group) + tile];
      }
    }
    return out;
  }

  __device__ void load_input(size_t tile, uint32_t (&pairs)[Shape::kColumnsOfThread / 2]) const {
    const size_t first = tile * Shape::kColumns + column;
    const bool is_there = row < p.rows && first < p.columns;
    const auto* from = reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(p.input) + row * p.columns + first);
#pragma unroll
    for (int i = 0; i < static_cast<int>(Shape::kColumnsOfThread / 8); ++i) {
      const uint4 four = is_there ? from[i] : make_uint4(0, 0, 0, 0);
#pragma unroll
      for (int k = 0; k < 4; ++k) pairs[4 * i + k] = word_of(four, k);
    }
  }

  __device__ void add(size_t tile, const Weights& weights, float (&sums)[4]) const {
    uint32_t input[Shape::kColumnsOfThread / 2];
    load_input(tile, input);
    float of_tile[4] = {}, of_input[4] = {};  // with groups: of this one, and of the rows themselves
    constexpr uint32_t kOne = kType == ElementType::kBFloat16 ? 0x3F803F80U : 0x3C003C00U;
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      uint32_t one[Shape::kPairs], other[Shape::kPairs];
      unpack_word<kFormat, kType>(word_of(weights.values[0], word), one);
      unpack_word<kFormat, kType>(word_of(weights.values[1], word), other);
#pragma unroll
      for (int k = 0; k < Shape::kPairs; k += 2) {
        const uint32_t b0 = input[word * Shape::kPairs + k], b1 = input[word * Shape::kPairs + k + 1];
        if constexpr (Shape::kHasGroups) {
          multiply<kType>(of_tile, one[k], other[k], one[k + 1], other[k + 1], b0, b1);
          multiply<kType>(of_input, kOne, kOne, kOne, kOne, b0, b1);
        } else {
          multiply<kType>(sums, one[k], other[k], one[k + 1], other[k + 1], b0, b1);
        }
      }
    }
    if constexpr (Shape::kHasGroups) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const GroupScale group = group_scale(weights.scales[i / 2]);
        sums[i] += group.scale * of_tile[i] + group.offset * of_input[i];
      }
    }
  }

  // Of the tiles of this warp.
  __device__ void add_all(int warp, float (&sums)[4]) const {
    const size_t tiles = (p.columns + Shape::kColumns - 1) / Shape::kColumns;
    for (size_t tile = warp; tile < tiles; tile += kWarps * Shape::kAhead) {
      Weights weights[Shape::kAhead];
#pragma unroll
      for (int ahead = 0; ahead < Shape::kAhead; ++ahead) weights[ahead] = load(tile + ahead * kWarps);
#pragma unroll
      for (int ahead = 0; ahead < Shape::kAhead; ++ahead) {
        if (tile + ahead * kWarps < tiles) add(tile + ahead * kWarps, weights[ahead], sums);
      }
    }
  }
};

__host__ __device__ inline size_t padded(size_t outputs) {
  return (outputs + kOutputs - 1) / kOutputs * kOutputs;
}

template <WeightFormat kFormat, ElementType kType>
__global__ void __launch_bounds__(kThreads, 3) quantized_products_kernel(const QuantizedProducts p) {
  __shared__ float sums_of_warps[kWarps][kMaxQuantizedRows][kOutputs];
  let_next_kernel_start();
  size_t first = blockIdx.x * kOutputs;
  int number = 0;
  while (first >= padded(p.parts[number].weight.outputs)) first -= padded(p.parts[number++].weight.outputs);
  const QuantizedProducts::Part part = p.parts[number];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const size_t group = lane / kQuad, last = part.weight.outputs - 1;
  const Block<kFormat, kType> block{p,
                                    part.weight,
                                    {min(first + group, last), min(first + group + 8, last)},
                                    group,
                                    lane % kQuad * Tile<kFormat>::kColumnsOfThread};
  float sums[4] = {};
  wait_for_earlier_kernels();
  block.add_all(warp, sums);
#pragma unroll
  for (int i = 0; i < 4; ++i) sums_of_warps[warp][lane % kQuad * 2 + i % 2][group + i / 2 * 8] = sums[i];
  __syncthreads();
  const size_t output = threadIdx.x % kOutputs, row = threadIdx.x / kOutputs, own = first + output;
  if (row >= p.rows || own >= part.weight.outputs) return;
  float sum = 0;
#pragma unroll
  for (int of = 0; of < kWarps; ++of) sum += sums_of_warps[of][row][output];
  if constexpr (!Tile<kFormat>::kHasGroups) sum *= static_cast<const float*>(part.weight.scales)[own];
  if (part.bias != nullptr) sum += load_element<kType>(part.bias, own);
  store_element<kType>(part.out, row * part.weight.outputs + own, sum);
}

template <WeightFormat kFormat, ElementType kType>
cudaError_t launch_products(const QuantizedProducts& p, cudaStream_t stream) {
  if constexpr (kType == ElementType::kFloat32) {
    return cudaErrorInvalidValue;
  } else {
    size_t outputs = 0;
    for (int i = 0; i < p.num_parts; ++i) outputs += padded(p.parts[i].weight.outputs);
    if (outputs == 0) return cudaSuccess;
    void* parameters[] = {const_cast<QuantizedProducts*>(&p)};
    return launch_overlapped(reinterpret_cast<const void*>(quantized_products_kernel<kFormat, kType>),
                             dim3(static_cast<unsigned>(outputs / kOutputs)), kThreads, 0, stream, parameters,
                             p.overlaps);
  }
}

// A block writes a part of one output, a thread the columns of a word.
template <WeightFormat kFormat, ElementType kType>
__global__ void __launch_bounds__(kThreads) expand_kernel(const QuantizedMatrix matrix, size_t columns, void* out) {
  constexpr int kColumns = kColumnsOfWord<kFormat>;
  const size_t words = columns / kColumns, output = blockIdx.x;
  const size_t word = static_cast<size_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (word >= words) return;
  uint32_t pairs[kColumns / 2];
  unpack_word<kFormat, ElementType::kFloat16>(static_cast<const uint32_t*>(matrix.values)[output * words + word],
                                              pairs);
  GroupScale own{};
  if constexpr (kFormat == WeightFormat::kInt4) {
    const size_t groups = columns / kInt4Group, group = word * kColumns / kInt4Group;
    own = group_scale(static_cast<const uint32_t*>(matrix.scales)[output * groups + group]);
  } else {
    own.scale = static_cast<const float*>(matrix.scales)[output];
  }
  float values[kColumns];
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    const float value = float_of<ElementType::kFloat16>(i % 2 == 0 ? pairs[i / 2] : pairs[i / 2] >> 16);
    values[i] = __fadd_rn(__fmul_rn(value, own.scale), own.offset);  // rounded as the operators on the host do
  }
  const size_t first = output * columns + word * kColumns;
  if constexpr (kColumns == kEach) {
    store8_wide<kType>(out, first, values);
  } else if constexpr (kType == ElementType::kFloat32) {
    *reinterpret_cast<float4*>(static_cast<float*>(out) + first) =
        make_float4(values[0], values[1], values[2], values[3]);
  } else {
    store_low_precision4<kType>(out, first, make_float4(values[0], values[1], values[2], values[3]), /*wide=*/true);
  }
}

template <WeightFormat kFormat, ElementType kType>
cudaError_t launch_expansion(const QuantizedMatrix& matrix, size_t columns, void* out, cudaStream_t stream) {
  if (matrix.outputs == 0 || columns == 0) return cudaSuccess;
  const size_t words = columns / kColumnsOfWord<kFormat>;
  const dim3 blocks(static_cast<unsigned>(matrix.outputs), static_cast<unsigned>((words + kThreads - 1) / kThreads));
  expand_kernel<kFormat, kType><<<blocks, kThreads, 0, stream>>>(matrix, columns, out);
  return cudaGetLastError();
}

// Calls `launch` with the format as a std::integral_constant.
template <class Launch>
cudaError_t with_format(WeightFormat format, Launch launch) {
  switch (format) {
    case WeightFormat::kInt8:
      return launch(std::integral_constant<WeightFormat, WeightFormat::kInt8>());
    case WeightFormat::kFp8:
      return launch(std::integral_constant<WeightFormat, WeightFormat::kFp8>());
    case WeightFormat::kInt4:
      return launch(std::integral_constant<WeightFormat, WeightFormat::kInt4>());
  }
  return cudaErrorInvalidValue;
}

}  // namespace

bool quantized_products_fit(const QuantizedProducts& products) {
  const size_t step = products.format == WeightFormat::kInt4 ? kInt4Group : 16;
  bool fits = products.type != ElementType::kFloat32 && products.rows >= 1 && products.rows <= kMaxQuantizedRows &&
              products.columns % step == 0 && on_16_bytes(products.input);
  for (int i = 0; i < products.num_parts; ++i) fits = fits && on_16_bytes(products.parts[i].weight.values);
  return fits;
}

cudaError_t launch_quantized_products(const QuantizedProducts& products, cudaStream_t stream) {
  return with_format(products.format, [&](auto format) {
    return with_type(products.type, [&](auto type) {
      return launch_products<decltype(format)::value, decltype(type)::value>(products, stream);
    });
  });
}

cudaError_t launch_expand(const QuantizedMatrix& matrix, WeightFormat format, size_t columns, ElementType type,
                          void* out, cudaStream_t stream) {
  return with_format(format, [&](auto form) {
    return with_type(type, [&](auto of) {
      return launch_expansion<decltype(form)::value, decltype(of)::value>(matrix, columns, out, stream);
    });
  });
}

}  // namespace dslaunch::kernels
