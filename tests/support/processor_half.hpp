// fp16 as the processor converts it: an oracle for our own conversions, which needs no _Float16 of the compiler.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace dslaunch::test {

__attribute__((target("f16c"))) inline uint16_t half_bits(float value) {
  return static_cast<uint16_t>(_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(value), _MM_FROUND_TO_NEAREST_INT)));
}
__attribute__((target("f16c"))) inline float half_value(uint16_t bits) {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
}

}  // namespace dslaunch::test
