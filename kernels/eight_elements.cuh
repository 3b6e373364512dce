// Eight consecutive elements of any type as floats, in one or two 16-byte accesses where the address allows it. Device
// only, except on_16_bytes.
#pragma once
#include "kernels/low_precision.cuh"

namespace dslaunch::kernels {

constexpr int kEach = 8;

template <ElementType kType>
constexpr size_t kBytesOf = kType == ElementType::kFloat32 ? 4 : 2;

inline __host__ __device__ bool on_16_bytes(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

template <ElementType kType>
__device__ inline float load_element(const void* values, size_t i) {
  if constexpr (kType == ElementType::kFloat32) {
    return static_cast<const float*>(values)[i];
  } else {
    const uint16_t bits = static_cast<const uint16_t*>(values)[i];
    return kType == ElementType::kBFloat16 ? __bfloat162float(__ushort_as_bfloat16(bits))
                                           : __half2float(__ushort_as_half(bits));
  }
}

template <ElementType kType>
__device__ inline float float_of(uint32_t bits) {
  const auto half = static_cast<uint16_t>(bits);
  return kType == ElementType::kBFloat16 ? __bfloat162float(__ushort_as_bfloat16(half))
                                         : __half2float(__ushort_as_half(half));
}

// Eight elements as they lie in memory: half the registers of floats in 16 bits, while they wait for their use.
template <ElementType kType>
struct Packed8 {
  uint4 words[kType == ElementType::kFloat32 ? 2 : 1] = {};
};

// Elements i to i + 7; element i must be 16-byte aligned.
template <ElementType kType>
__device__ inline Packed8<kType> load8_packed(const void* values, size_t i) {
  const auto* from = reinterpret_cast<const uint4*>(static_cast<const char*>(values) + i * kBytesOf<kType>);
  Packed8<kType> out;
  out.words[0] = from[0];
  if constexpr (kType == ElementType::kFloat32) out.words[1] = from[1];
  return out;
}

template <ElementType kType>
__device__ inline void store8_packed(void* out, size_t i, const Packed8<kType>& packed) {
  auto* to = reinterpret_cast<uint4*>(static_cast<char*>(out) + i * kBytesOf<kType>);
  to[0] = packed.words[0];
  if constexpr (kType == ElementType::kFloat32) to[1] = packed.words[1];
}

template <ElementType kType>
__device__ inline void unpack8(const Packed8<kType>& packed, float (&out)[kEach]) {
#pragma unroll
  for (int half = 0; half < static_cast<int>(sizeof(packed.words) / sizeof(uint4)); ++half) {
    const uint4 v = packed.words[half];
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if constexpr (kType == ElementType::kFloat32) {
        out[4 * half + k] = __uint_as_float(words[k]);
      } else {
        out[2 * k] = float_of<kType>(words[k]);
        out[2 * k + 1] = float_of<kType>(words[k] >> 16);
      }
    }
  }
}

template <ElementType kType>
__device__ inline void load8_wide(const void* values, size_t i, float (&out)[kEach]) {
  unpack8<kType>(load8_packed<kType>(values, i), out);
}

// Elements i to i + 7; zeros past the end. `wide`: element 0 is 16-byte aligned.
template <ElementType kType>
__device__ inline void load8(const void* values, size_t i, size_t count, bool wide, float (&out)[kEach]) {
  if (wide && i + kEach <= count) return load8_wide<kType>(values, i, out);
#pragma unroll
  for (int k = 0; k < kEach; ++k) out[k] = i + k < count ? load_element<kType>(values, i + k) : 0.0F;
}

template <ElementType kType>
__device__ inline void store_element(void* out, size_t i, float value) {
  if constexpr (kType == ElementType::kFloat32) {
    static_cast<float*>(out)[i] = value;
  } else {
    store_low_precision<kType>(out, i, value);
  }
}

template <ElementType kType>
__device__ inline void store8_wide(void* out, size_t i, const float (&values)[kEach]) {
  if constexpr (kType == ElementType::kFloat32) {
    auto* to = reinterpret_cast<float4*>(static_cast<float*>(out) + i);
    to[0] = make_float4(values[0], values[1], values[2], values[3]);
    to[1] = make_float4(values[4], values[5], values[6], values[7]);
  } else {
    *reinterpret_cast<uint4*>(static_cast<uint16_t*>(out) + i) =
        make_uint4(pack_low_precision<kType>(values[0], values[1]), pack_low_precision<kType>(values[2], values[3]),
                   pack_low_precision<kType>(values[4], values[5]), pack_low_precision<kType>(values[6], values[7]));
  }
}

template <ElementType kType>
__device__ inline void store8(void* out, size_t i, size_t count, bool wide, const float (&values)[kEach]) {
  if (wide && i + kEach <= count) return store8_wide<kType>(out, i, values);
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    if (i + k >= count) break;
    store_element<kType>(out, i + k, values[k]);
  }
}

}  // namespace dslaunch::kernels
