// Converts fp32 to bf16 and fp16, rounded to nearest even, and back, which is exact; in arithmetic without branches, so
// that loops over it vectorise on any processor. NaN stays NaN, overflow becomes infinity, fp16 subnormals are rounded
// exactly.
#pragma once
#include <cstdint>

namespace dslaunch {

inline uint16_t bfloat16_bits(float value) {
  const auto bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  return static_cast<uint16_t>(is_nan ? 0x7FC0U : rounded);
}

inline uint16_t float16_bits(float value) {
  const auto bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  // Rebias the exponent (127 to 15) and round off 13 bits; a carry into the exponent is the correct rounding up.
  const uint32_t shifted = (magnitude - 0x38000000U + 0x0FFFU + ((magnitude >> 13) & 1U)) >> 13;
  const uint32_t normal = magnitude >= 0x47800000U ? 0x7C00U : shifted;
  // Below 2^-14: one unit in the last place of 0.5 is fp16's smallest subnormal, so the addition rounds.
  const float moved = __builtin_bit_cast(float, magnitude) + 0.5F;
  const uint32_t subnormal = __builtin_bit_cast(uint32_t, moved) - 0x3F000000U;
  const uint32_t finite = magnitude < 0x38800000U ? subnormal : normal;
  const uint32_t result = magnitude > 0x7F800000U ? 0x7E00U : finite;
  return static_cast<uint16_t>(sign | result);
}

inline float bfloat16_value(uint16_t bits) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
}

inline float float16_value(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000U) << 16;
  const uint32_t shifted = (bits & 0x7FFFU) << 13;
  // Rebias the exponent (15 to 127); that of infinity and NaN once more, to 255.
  const uint32_t normal = shifted + (shifted >= 0x0F800000U ? 0x70000000U : 0x38000000U);
  // A subnormal is a mantissa on top of 2^-14; the subtraction is exact.
  const float above = __builtin_bit_cast(float, shifted + 0x38800000U);
  const auto subnormal = __builtin_bit_cast(uint32_t, above - __builtin_bit_cast(float, 0x38800000U));
  const uint32_t magnitude = shifted < 0x00800000U ? subnormal : normal;
  return __builtin_bit_cast(float, sign | magnitude);
}

}  // namespace dslaunch
