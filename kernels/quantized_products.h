// Products of a few rows with matrices whose elements are stored in 8 or 4 bits, and such matrices as 16-bit or fp32
// ones. See quantized_products.cu.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/element_type.h"

namespace dslaunch::kernels {

enum class WeightFormat {
  kInt8,  // int8, a scale for each output: value * scale
  kFp8,   // e4m3, likewise
  kInt4,  // 0 to 15, a scale and an offset for each kInt4Group columns: value * scale + offset
};

constexpr size_t kMaxQuantizedRows = 8;
constexpr int kMaxQuantizedParts = 4;
constexpr size_t kInt4Group = 128;

struct QuantizedMatrix {
  // [outputs, columns], 16-byte aligned. Of kInt4 a word of 32 bits has eight columns: its nibble i (from the lowest
  // bits on) has column 2i of them, for i below 4, and nibble 4 + i column 2i + 1.
  const void* values = nullptr;
  // fp32 [outputs]; of kInt4 bf16 [outputs, groups, 2]: scale, offset.
  const void* scales = nullptr;
  size_t outputs = 0;
};

struct QuantizedProducts {
  const void* input = nullptr;  // [rows, columns], 16-byte aligned
  struct Part {
    QuantizedMatrix weight;
    const void* bias = nullptr;  // [outputs]; null: none
    void* out = nullptr;         // [rows, outputs]
  };
  Part parts[kMaxQuantizedParts];
  int num_parts = 0;
  ElementType type = ElementType::kBFloat16;  // of input, biases and outs
  WeightFormat format = WeightFormat::kInt8;
  size_t rows = 0, columns = 0;
  bool overlaps = false;  // it may start, and read weights, while the kernel before it runs (overlapped_launch.h)
};

// Whether the kernel applies: a 16-bit type, 1 to kMaxQuantizedRows rows, columns a multiple of 16 (kInt4: of the
// group), alignment as above.
bool quantized_products_fit(const QuantizedProducts& products);

// Writes out[row][output] = sum over columns of input[row] * weight[output], plus the bias, in fp32, rounded once; of
// every part.
cudaError_t launch_quantized_products(const QuantizedProducts& products, cudaStream_t stream);

// Writes the matrix to out [outputs, columns] (16-byte aligned), computed in fp32 and rounded once to the type. Columns
// as above.
cudaError_t launch_expand(const QuantizedMatrix& matrix, WeightFormat format, size_t columns, ElementType type,
                          void* out, cudaStream_t stream);

}  // namespace dslaunch::kernels
