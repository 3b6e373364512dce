// Elements of 8 and 4 bits as pairs of 16-bit floats, exactly. Device only.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/element_type.h"
#include "kernels/quantized_products.h"

namespace dslaunch::kernels {

// Columns in a word of 32 bits.
template <WeightFormat kFormat>
constexpr int kColumnsOfWord = kFormat == WeightFormat::kInt4 ? 8 : 4;

template <ElementType kType>
__device__ inline uint32_t subtract_pairs(uint32_t pair, uint32_t from) {
  if constexpr (kType == ElementType::kBFloat16) {
    const auto a = *reinterpret_cast<const __nv_bfloat162*>(&pair), b = *reinterpret_cast<const __nv_bfloat162*>(&from);
    const __nv_bfloat162 out = __hsub2(a, b);
    return *reinterpret_cast<const uint32_t*>(&out);
  } else {
    const auto a = *reinterpret_cast<const __half2*>(&pair), b = *reinterpret_cast<const __half2*>(&from);
    const __half2 out = __hsub2(a, b);
    return *reinterpret_cast<const uint32_t*>(&out);
  }
}

template <ElementType kType>
__device__ inline uint32_t multiply_pairs(uint32_t pair, uint32_t by) {
  if constexpr (kType == ElementType::kBFloat16) {
    const auto a = *reinterpret_cast<const __nv_bfloat162*>(&pair), b = *reinterpret_cast<const __nv_bfloat162*>(&by);
    const __nv_bfloat162 out = __hmul2(a, b);
    return *reinterpret_cast<const uint32_t*>(&out);
  } else {
    const auto a = *reinterpret_cast<const __half2*>(&pair), b = *reinterpret_cast<const __half2*>(&by);
    const __half2 out = __hmul2(a, b);
    return *reinterpret_cast<const uint32_t*>(&out);
  }
}

// In the lowest mantissa bits of a large number an integer is that number plus the integer.

template <ElementType kType>
__device__ inline void unpack_int8(uint32_t word, uint32_t (&pairs)[2]) {
  const uint32_t biased = word ^ 0x80808080U;  // plus 128
  if constexpr (kType == ElementType::kFloat16) {
    pairs[0] = subtract_pairs<kType>(__byte_perm(biased, 0x64646464U, 0x4140), 0x64806480U);  // 1024 + 128
    pairs[1] = subtract_pairs<kType>(__byte_perm(biased, 0x64646464U, 0x4342), 0x64806480U);
  } else {  // bf16 has no room for eight bits in its mantissa
    float values[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      values[i] = __uint_as_float(__byte_perm(biased, 0x4B000000U, 0x7440 + i)) - 8388736.0F;  // 2^23 + 128
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
      pairs[i] = *reinterpret_cast<const uint32_t*>(&pair);
    }
  }
}

// Exponent and mantissa move to their places; the factor makes up for the other bias of the exponent.
template <ElementType kType>
__device__ inline void unpack_fp8(uint32_t word, uint32_t (&pairs)[2]) {
  constexpr int kShift = kType == ElementType::kFloat16 ? 1 : 4;
  constexpr uint32_t kFactor = kType == ElementType::kFloat16 ? 0x5C005C00U : 0x7B807B80U;  // 2^8, 2^120
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t high = __byte_perm(word, 0, i == 0 ? 0x1404 : 0x3424);  // the upper byte of each half
    pairs[i] = multiply_pairs<kType>(((high & 0x7F007F00U) >> kShift) | (high & 0x80008000U), kFactor);
  }
}

template <ElementType kType>
__device__ inline void unpack_int4(uint32_t word, uint32_t (&pairs)[4]) {
  constexpr uint32_t kLarge = kType == ElementType::kFloat16 ? 0x64006400U : 0x43004300U;  // 1024, 128
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    pairs[i] = subtract_pairs<kType>(((word >> (4 * i)) & 0x000F000FU) | kLarge, kLarge);
  }
}

// The columns of a word in order, two in each pair, the first in the lower half.
template <WeightFormat kFormat, ElementType kType>
__device__ inline void unpack_word(uint32_t word, uint32_t (&pairs)[kColumnsOfWord<kFormat> / 2]) {
  static_assert(kType != ElementType::kFloat32);
  if constexpr (kFormat == WeightFormat::kInt8) {
    unpack_int8<kType>(word, pairs);
  } else if constexpr (kFormat == WeightFormat::kFp8) {
    unpack_fp8<kType>(word, pairs);
  } else {
    unpack_int4<kType>(word, pairs);
  }
}

struct GroupScale {
  float scale, offset;
};
// Of a scale and an offset in bf16.
__device__ inline GroupScale group_scale(uint32_t bits) {
  return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xFFFF0000U)};
}

}  // namespace dslaunch::kernels
