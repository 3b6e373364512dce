// The sum of a double over a block of kThreads threads, valid in thread 0. Fixed tree: lanes of a warp, then warps.
// Device only. A block that calls it several times must synchronize in between.
#pragma once
#include "kernels/launch_shape.cuh"

namespace dslaunch::kernels {

__device__ inline double block_sum(double value) {
  __shared__ double warp_sums[kThreads / 32];
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_down_sync(0xFFFFFFFFU, value, distance);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x != 0) return 0.0;
  double sum = 0.0;
  for (int warp = 0; warp < kThreads / 32; ++warp) sum += warp_sums[warp];
  return sum;
}

__device__ inline double square(float value) {
  return static_cast<double>(value) * static_cast<double>(value);  // exact
}

}  // namespace dslaunch::kernels
