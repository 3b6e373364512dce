#include "kernels/clip_factor.h"

namespace dslaunch::kernels {
namespace {

__global__ void clip_factor_kernel(const double* sum_of_squares, double max_norm, double gradient_scale, double* norm,
                                   float* factor) {
  const double total = sqrt(*sum_of_squares) * gradient_scale;
  const double ratio = max_norm > 0.0 ? (total + 1e-6) / max_norm : 0.0;
  *norm = total;
  *factor = static_cast<float>(ratio > 1.0 ? gradient_scale / ratio : gradient_scale);
}

}  // namespace

cudaError_t launch_clip_factor(const double* sum_of_squares, double max_norm, double gradient_scale, double* norm,
                               float* factor, cudaStream_t stream) {
  clip_factor_kernel<<<1, 1, 0, stream>>>(sum_of_squares, max_norm, gradient_scale, norm, factor);
  return cudaGetLastError();
}

}  // namespace dslaunch::kernels
