// Two sums over a block at once, returned in every thread: for a block that works on several rows in sequence and needs
// the sums for each row. Fixed tree: lanes of a warp, then warps. Device only.
#pragma once
#include <cuda_runtime_api.h>

namespace dslaunch::kernels {

// For blocks of whole warps, at most 32. Every thread of the block calls it.
class BlockPairSum {
 public:
  // In __shared__ memory, one per block.
  struct Storage {
    float2 warps[2][32];
  };
  __device__ explicit BlockPairSum(Storage& storage) : storage_(storage) {}

  __device__ inline float2 operator()(float2 value) {
    for (int distance = 16; distance > 0; distance /= 2) {
      value.x += __shfl_xor_sync(0xFFFFFFFFU, value.x, distance);
      value.y += __shfl_xor_sync(0xFFFFFFFFU, value.y, distance);
    }
    const unsigned num_warps = blockDim.x / 32;
    if (num_warps == 1) return value;
    // Two buffers in turn: before a warp writes a buffer again, a __syncthreads() has followed all reads of it.
    turn_ ^= 1;
    if (threadIdx.x % 32 == 0) storage_.warps[turn_][threadIdx.x / 32] = value;
    __syncthreads();
    value = storage_.warps[turn_][0];
    for (unsigned warp = 1; warp < num_warps; ++warp) {
      value.x += storage_.warps[turn_][warp].x;
      value.y += storage_.warps[turn_][warp].y;
    }
    return value;
  }

 private:
  Storage& storage_;
  int turn_ = 0;
};

}  // namespace dslaunch::kernels
