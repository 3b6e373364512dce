// Values as small integer multiples of a scale that a block of them shares (block_codes.h). The kernels and the host
// loops of lib/runtime/sharding share this source, so that both give the same bits; plain arithmetic, needs no CUDA
// headers.
#pragma once
#include <cstdint>

#ifdef __CUDACC__
#define DSL_RULE __host__ __device__ static inline
#else
#define DSL_RULE __attribute__((always_inline)) static inline
#endif

namespace dslaunch::kernels {

struct BlockCodeRule {
  // The bits of |value|: they order like the magnitudes, with infinity above all numbers and NaN above infinity, so the
  // largest one in a block shows whether the whole block is finite.
  DSL_RULE uint32_t magnitude(float value) {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits & 0x7FFFFFFFU;
  }

  DSL_RULE float scale(uint32_t largest_magnitude, int largest_code) {
    float largest;
    __builtin_memcpy(&largest, &largest_magnitude, sizeof largest);
    return largest / static_cast<float>(largest_code);
  }

  // The factor that turns a value into a number of scale steps; one division per block. A scale that is not a normal
  // number has no inverse in fp32: such a block (of zeros, or of values below 2^-119) becomes zeros.
  DSL_RULE float inverse(float scale) { return scale >= 0x1p-126F ? 1.0F / scale : 0.0F; }

  // The nearest integer number of steps, ties to even. NaN, from a block that is not finite, becomes a code that its
  // scale (infinity or NaN) turns back into a non-finite value.
  DSL_RULE int code(float value, float inverse, int largest_code) {
    const float largest = static_cast<float>(largest_code);
    const float steps = value * inverse;
    // Adding and subtracting 1.5 * 2^23 rounds values below 2^22; larger values are clamped below.
    const float kRound = 12582912.0F;
    const float nearest = (steps + kRound) - kRound;
    if (!(nearest == nearest)) return 1;
    return static_cast<int>(nearest > largest ? largest : nearest < -largest ? -largest : nearest);
  }

  DSL_RULE float value(int code, float scale) { return static_cast<float>(code) * scale; }

  // What error feedback keeps: a moving average of the quantization error; an overflow is skipped, not remembered.
  DSL_RULE float next_error(float last_error, float quantization_error, float beta) {
    const float next = last_error * beta + quantization_error * (1.0F - beta);
    return magnitude(next) < 0x7F800000U ? next : 0.0F;
  }
};

}  // namespace dslaunch::kernels

#undef DSL_RULE
