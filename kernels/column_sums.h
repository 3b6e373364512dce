// The sums of a matrix's columns: the gradient of a bias; also of a matrix that is put together from several. In fp32;
// the order of additions depends on the shape alone. See column_sums.cu.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/element_type.h"

namespace dslaunch::kernels {

// The number of partial sums per column that launch_column_partials makes: a function of the shape alone.
size_t num_column_partials(size_t rows, size_t columns);

// partials[num_column_partials][columns], fp32, of values[rows][columns]; at least one row and column.
cudaError_t launch_column_partials(const void* values, ElementType type, size_t rows, size_t columns, float* partials,
                                   cudaStream_t stream);

// Matrices that lie side by side as the columns of one.
struct ColumnParts {
  static constexpr int kMax = 8;
  int num_parts = 0;
  const void* values[kMax] = {};
  size_t strides[kMax] = {};  // from row to row, in elements
  size_t ends[kMax] = {};     // the column after the part's last one
};

// Whether the next function applies: parts have multiples of 8 columns, and all of their rows begin at 16 bytes.
bool joined_columns_fit(const ColumnParts& parts, ElementType type);

// Writes joined[rows][columns], on 16 bytes, and the same partials as launch_column_partials of it.
cudaError_t launch_joined_partials(const ColumnParts& parts, ElementType type, size_t rows, void* joined,
                                   float* partials, cudaStream_t stream);

// out[columns] = the sums of partials[num_partials][columns], in out's type.
cudaError_t launch_column_totals(const float* partials, size_t num_partials, size_t columns, void* out,
                                 ElementType type, cudaStream_t stream);

}  // namespace dslaunch::kernels
