// The low-precision copy of a master weight: none, bf16 or fp16, one element or four at a time. Device only.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/element_type.h"

namespace dslaunch::kernels {

template <ElementType kType>
__device__ inline uint16_t low_precision_bits(float value) {
  if constexpr (kType == ElementType::kBFloat16) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
  } else {
    return __half_as_ushort(__float2half_rn(value));
  }
}

// kFloat32 means "no copy".
template <ElementType kType>
__device__ inline void store_low_precision(void* low_precision, size_t i, float value) {
  if constexpr (kType != ElementType::kFloat32) {
    static_cast<uint16_t*>(low_precision)[i] = low_precision_bits<kType>(value);
  }
}

// Two 16-bit elements in one word, the first in the lower half.
template <ElementType kType>
__device__ inline uint32_t pack_low_precision(float first, float second) {
  return low_precision_bits<kType>(first) | static_cast<uint32_t>(low_precision_bits<kType>(second)) << 16;
}

// Elements i to i + 3. `wide` (uniform over the grid): element i is 8-byte aligned, one access suffices.
template <ElementType kType>
__device__ inline void store_low_precision4(void* low_precision, size_t i, const float4& value, bool wide) {
  if constexpr (kType != ElementType::kFloat32) {
    uint16_t* target = static_cast<uint16_t*>(low_precision) + i;
    if (wide) {
      *reinterpret_cast<uint2*>(target) =
          make_uint2(pack_low_precision<kType>(value.x, value.y), pack_low_precision<kType>(value.z, value.w));
    } else {
      target[0] = low_precision_bits<kType>(value.x);
      target[1] = low_precision_bits<kType>(value.y);
      target[2] = low_precision_bits<kType>(value.z);
      target[3] = low_precision_bits<kType>(value.w);
    }
  }
}

}  // namespace dslaunch::kernels
