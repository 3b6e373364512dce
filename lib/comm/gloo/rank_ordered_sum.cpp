#include "comm/gloo/rank_ordered_sum.hpp"

#include <cpuid.h>
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/half_float.hpp"

namespace dslaunch::comm {

namespace {

// Elements are processed in blocks whose accumulator stays in the L1 cache.
constexpr size_t kBlock = 2048;

struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

void widen(const float* in, float* out, size_t count) {
  std::memcpy(out, in, count * sizeof(float));
}
void narrow(const float* in, float* out, size_t count) {
  std::memcpy(out, in, count * sizeof(float));
}

void widen(const BFloat16* in, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = __builtin_bit_cast(float, static_cast<uint32_t>(in[i].bits) << 16);
}
void narrow(const float* in, BFloat16* out, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i].bits = bfloat16_bits(in[i]);
}

float half_to_float(uint16_t half) {
  uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  uint32_t exponent = (half >> 10) & 0x1fu, fraction = half & 0x3ffu;
  if (exponent == 31) return __builtin_bit_cast(float, sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0) return __builtin_bit_cast(float, sign | ((exponent + 112) << 23) | (fraction << 13));
  float magnitude = static_cast<float>(fraction) * 0x1p-24f;  // subnormal, exact
  return sign ? -magnitude : magnitude;
}

__attribute__((target("avx,f16c"))) size_t widen_vectors(const Float16* in, float* out, size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
  }
  return i;
}
__attribute__((target("avx,f16c"))) size_t narrow_vectors(const float* in, Float16* out, size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    auto half = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), half);
  }
  return i;
}

// Queries the processor directly: not every compiler's __builtin_cpu_supports knows "f16c".
bool has_f16c() {
  static const bool answer = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __builtin_cpu_supports("avx") && __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  }();
  return answer;
}

void widen(const Float16* in, float* out, size_t count) {
  size_t i = has_f16c() ? widen_vectors(in, out, count) : 0;
  for (; i < count; ++i) out[i] = half_to_float(in[i].bits);
}
void narrow(const float* in, Float16* out, size_t count) {
  size_t i = has_f16c() ? narrow_vectors(in, out, count) : 0;
  for (; i < count; ++i) out[i].bits = float16_bits(in[i]);
}

float larger(float a, float b) {
  return a > b || std::isnan(a) ? a : b;
}

void reduce_into(float* into, const float* in, size_t count, ReduceOp op) {
  if (op == ReduceOp::kSum) {
    for (size_t i = 0; i < count; ++i) into[i] += in[i];
  } else {
    for (size_t i = 0; i < count; ++i) into[i] = larger(into[i], in[i]);
  }
}

template <class T>
void reduce_floats(const void* const* inputs, size_t num_inputs, void* out, size_t count, ReduceOp op) {
  alignas(64) float sum[kBlock], next[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    size_t length = std::min(kBlock, count - begin);
    widen(static_cast<const T*>(inputs[0]) + begin, sum, length);
    for (size_t i = 1; i < num_inputs; ++i) {
      widen(static_cast<const T*>(inputs[i]) + begin, next, length);
      reduce_into(sum, next, length, op);
    }
    narrow(sum, static_cast<T*>(out) + begin, length);
  }
}

template <class T>
void reduce_integers(const void* const* inputs, size_t num_inputs, void* out, size_t count, ReduceOp op) {
  using Unsigned = std::make_unsigned_t<T>;  // a sum that overflows wraps, as on a device
  T sum[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    size_t length = std::min(kBlock, count - begin);
    std::memcpy(sum, static_cast<const T*>(inputs[0]) + begin, length * sizeof(T));
    for (size_t i = 1; i < num_inputs; ++i) {
      const char* source = static_cast<const char*>(inputs[i]) + begin * sizeof(T);
      for (size_t j = 0; j < length; ++j) {
        T value;
        std::memcpy(&value, source + j * sizeof(T), sizeof(T));
        sum[j] = op == ReduceOp::kSum ? static_cast<T>(static_cast<Unsigned>(sum[j]) + static_cast<Unsigned>(value))
                                      : std::max(sum[j], value);
      }
    }
    std::memcpy(static_cast<char*>(out) + begin * sizeof(T), sum, length * sizeof(T));
  }
}

}  // namespace

void reduce_in_order(const void* const* inputs, size_t num_inputs, void* out, size_t count, DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::kFloat32:
      return reduce_floats<float>(inputs, num_inputs, out, count, op);
    case DType::kBFloat16:
      return reduce_floats<BFloat16>(inputs, num_inputs, out, count, op);
    case DType::kFloat16:
      return reduce_floats<Float16>(inputs, num_inputs, out, count, op);
    case DType::kInt64:
      return reduce_integers<int64_t>(inputs, num_inputs, out, count, op);
    case DType::kUInt8:
      return reduce_integers<uint8_t>(inputs, num_inputs, out, count, op);
  }
}

}  // namespace dslaunch::comm
