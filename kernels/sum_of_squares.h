// The sum of squares of arrays in double, in two stages: partial sums for each array, then one sum over all partial
// sums. The order of additions depends only on the counts, the types and the addresses modulo 16, on any device. See
// sum_of_squares.cu.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/element_type.h"

namespace dslaunch::kernels {

// The number of partial sums for an array of `count` elements; 0 for an empty array.
size_t num_square_partials(size_t count);

// Writes num_square_partials(count) doubles to `partials`. Enqueues on `stream`; any alignment of elements.
cudaError_t launch_square_partials(const void* values, ElementType type, size_t count, double* partials,
                                   cudaStream_t stream);

// *sum = the sum of the partials; 0 when there are none. Enqueues on `stream`.
cudaError_t launch_sum_partials(const double* partials, size_t count, double* sum, cudaStream_t stream);

}  // namespace dslaunch::kernels
