// Products of a few rows with matrices, as a model's layers compute them for one new token of each text: the time is
// that of reading the matrices once. See row_products.cu.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/element_type.h"

namespace dslaunch::kernels {

constexpr size_t kMaxProductRows = 8;
constexpr int kMaxProductParts = 4;

struct RowProducts {
  const void* input = nullptr;  // [rows, columns]
  struct Part {
    const void* weight = nullptr;  // [outputs, columns]
    const void* bias = nullptr;    // [outputs]; null: none
    void* out = nullptr;           // [rows, outputs]
    size_t outputs = 0;
  };
  Part parts[kMaxProductParts];
  int num_parts = 0;
  ElementType type = ElementType::kFloat32;  // of all arrays
  size_t rows = 0, columns = 0;
  bool overlaps = false;  // it may start, and read weights, while the kernel before it runs (overlapped_launch.h)
};

// Whether the kernel applies: 1 to kMaxProductRows rows, columns a multiple of 8, input and weights 16-byte aligned.
bool row_products_fit(const RowProducts& products);

// Writes out[row][output] = sum over columns of input[row] * weight[output], plus the bias, in fp32, rounded once; of
// every part.
cudaError_t launch_row_products(const RowProducts& products, cudaStream_t stream);

}  // namespace dslaunch::kernels
