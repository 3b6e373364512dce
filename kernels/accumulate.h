// Adds a gradient of any type to an fp32 sum. See accumulate.cu.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/element_type.h"

namespace dslaunch::kernels {

// sum[i] += scale * gradient[i]. Enqueues on `stream`; any alignment, fastest when both lie on 16-byte boundaries.
cudaError_t launch_accumulate(float* sum, const void* gradient, ElementType gradient_type, float scale, size_t count,
                              cudaStream_t stream);

}  // namespace dslaunch::kernels
