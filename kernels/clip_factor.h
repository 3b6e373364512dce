// The global gradient norm and the clipping factor, from a sum of squares on the device. See clip_factor.cu.
#pragma once
#include <cuda_runtime_api.h>

namespace dslaunch::kernels {

// *norm = sqrt(*sum_of_squares) * gradient_scale, and with r = (*norm + 1e-6) / max_norm
// *factor = gradient_scale / r where r > 1, else gradient_scale. A max_norm of 0 disables clipping. Enqueues on
// `stream`.
cudaError_t launch_clip_factor(const double* sum_of_squares, double max_norm, double gradient_scale, double* norm,
                               float* factor, cudaStream_t stream);

}  // namespace dslaunch::kernels
