// Layer normalization of rows in fp32, whatever the type: one pass over the rows in forward, and one in backward that
// also computes the gradients of weight and bias. See layer_norm.cu.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/element_type.h"

namespace dslaunch::kernels {

struct LayerNormArguments {
  const void* input = nullptr;               // [rows, columns]
  const void* weight = nullptr;              // [columns]
  const void* bias = nullptr;                // [columns]
  ElementType type = ElementType::kFloat32;  // of all arrays but the statistics
  size_t rows = 0, columns = 0;
  float eps = 1e-5F;
  float* means = nullptr;  // [rows]
  float* rstds = nullptr;  // [rows]: 1 / sqrt(variance + eps), the variance divided by the number of columns
};

// Whether these kernels apply: columns are a multiple of 8 and at most 8192, and all arrays are 16-byte aligned.
bool layer_norm_fits(size_t columns, const void* const* arrays, int num_arrays);

// Writes out[row][c] = (input - mean) * rstd * weight[c] + bias[c] and the statistics.
cudaError_t launch_layer_norm(const LayerNormArguments& arguments, void* out, cudaStream_t stream);

// The number of partial sums per column that launch_layer_norm_gradient makes: a function of the shape alone.
size_t num_layer_norm_partials(size_t rows, size_t columns);

struct LayerNormGradient {
  const void* upstream = nullptr;    // [rows, columns]
  const void* residual = nullptr;    // [rows, columns], added to `input` before it is rounded; null: nothing is
  void* input = nullptr;             // [rows, columns], output; may be `residual`
  float* weight_partials = nullptr;  // [num_layer_norm_partials, columns], output: column_sums.h adds them up
  float* bias_partials = nullptr;
};

// Uses the statistics that forward wrote; does not read the bias.
cudaError_t launch_layer_norm_gradient(const LayerNormArguments& arguments, const LayerNormGradient& gradient,
                                       cudaStream_t stream);

}  // namespace dslaunch::kernels
