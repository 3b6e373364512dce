#include "kernels/block_code_rules.h"
#include "kernels/block_codes.h"
#include "kernels/launch_shape.cuh"
#include "kernels/low_precision.cuh"

namespace dslaunch::kernels {
namespace {

// A thread has eight neighbours of a block, so that their 4-bit codes are one word.
constexpr int kEach = 8;

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

// Elements i to i + 7; zeros behind the end. `wide`: element 0 lies on a 16-byte boundary.
template <ElementType kType>
__device__ inline void load8(const void* values, size_t i, size_t count, bool wide, float (&out)[kEach]) {
  if (wide && i + kEach <= count) {
    if constexpr (kType == ElementType::kFloat32) {
      const auto* from = reinterpret_cast<const float4*>(static_cast<const float*>(values) + i);
      const float4 a = from[0], b = from[1];
      out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w;
      out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
    } else {
      const uint4 v = *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(values) + i);
      const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        out[2 * k] = float_of<kType>(words[k]);
        out[2 * k + 1] = float_of<kType>(words[k] >> 16);
      }
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < kEach; ++k) out[k] = i + k < count ? load_element<kType>(values, i + k) : 0.0F;
}

template <ElementType kType>
__device__ inline void store8(void* out, size_t i, size_t count, bool wide, const float (&values)[kEach]) {
  if (wide && i + kEach <= count) {
    if constexpr (kType == ElementType::kFloat32) {
      auto* to = reinterpret_cast<float4*>(static_cast<float*>(out) + i);
      to[0] = make_float4(values[0], values[1], values[2], values[3]);
      to[1] = make_float4(values[4], values[5], values[6], values[7]);
    } else {
      *reinterpret_cast<uint4*>(static_cast<uint16_t*>(out) + i) =
          make_uint4(pack_low_precision<kType>(values[0], values[1]), pack_low_precision<kType>(values[2], values[3]),
                     pack_low_precision<kType>(values[4], values[5]), pack_low_precision<kType>(values[6], values[7]));
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    if (i + k >= count) break;
    if constexpr (kType == ElementType::kFloat32) {
      static_cast<float*>(out)[i + k] = values[k];
    } else {
      store_low_precision<kType>(out, i + k, values[k]);
    }
  }
}

// Eight codes from element i on: two words of 8 bits each, or one of 4 bits each with 8 added.
template <int kBits>
__device__ inline void store_codes(uint8_t* codes, size_t i, const int (&code)[kEach]) {
  uint32_t words[kBits / 4] = {};
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const uint32_t bits = kBits == 8 ? static_cast<uint32_t>(code[k]) & 0xFFU : static_cast<uint32_t>(code[k] + 8);
    words[k * kBits / 32] |= bits << (k * kBits % 32);
  }
  auto* to = reinterpret_cast<uint32_t*>(codes + i * kBits / 8);
#pragma unroll
  for (int w = 0; w < kBits / 4; ++w) to[w] = words[w];
}

template <int kBits>
__device__ inline void load_codes(const uint8_t* codes, size_t i, int (&code)[kEach]) {
  const auto* from = reinterpret_cast<const uint32_t*>(codes + i * kBits / 8);
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const uint32_t bits = from[k * kBits / 32] >> (k * kBits % 32);
    code[k] = kBits == 8 ? static_cast<int8_t>(bits & 0xFFU) : static_cast<int>(bits & 0xFU) - 8;
  }
}

template <ElementType kType, int kBits, int kBlock>
__global__ void __launch_bounds__(kThreads)
    quantize_kernel(const QuantizeArguments a, size_t num_eights, bool wide, bool wide_error) {
  constexpr int kLanes = kBlock / kEach;  // threads of one block of elements, neighbours in a warp
  constexpr int kLargest = (1 << (kBits - 1)) - 1;
  // All threads of a warp take the same number of turns: the shuffles need them.
  for (size_t first = grid_thread() / 32 * 32; first < num_eights; first += grid_stride()) {
    const size_t eight = first + threadIdx.x % 32, i = eight * kEach;
    float values[kEach] = {}, error[kEach] = {};
    if (eight < num_eights) load8<kType>(a.values, i, a.count, wide, values);
    if (a.error != nullptr && eight < num_eights) {
      load8<ElementType::kFloat32>(a.error, i, a.count, wide_error, error);
#pragma unroll
      for (int k = 0; k < kEach; ++k) values[k] += error[k];
    }
    uint32_t largest = 0;
#pragma unroll
    for (int k = 0; k < kEach; ++k) largest = max(largest, BlockCodeRule::magnitude(values[k]));
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      largest = max(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, distance));
    }
    if (eight >= num_eights) continue;
    const float scale = BlockCodeRule::scale(largest, kLargest), inverse = BlockCodeRule::inverse(scale);
    if (eight % kLanes == 0) a.to.scales[eight / kLanes] = scale;
    int code[kEach];
#pragma unroll
    for (int k = 0; k < kEach; ++k) code[k] = BlockCodeRule::code(values[k], inverse, kLargest);
    store_codes<kBits>(a.to.codes, i, code);
    if (a.error == nullptr) continue;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      error[k] = BlockCodeRule::kept(error[k], values[k] - BlockCodeRule::value(code[k], scale), a.error_beta);
    }
    store8<ElementType::kFloat32>(a.error, i, a.count, wide_error, error);
  }
}

template <ElementType kType, int kBits, int kBlock>
__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(const DequantizeArguments a, size_t num_eights, bool wide) {
  for (size_t eight = grid_thread(); eight < num_eights; eight += grid_stride()) {
    const size_t i = eight * kEach;
    if (i >= a.count) return;
    const float scale = a.from.scales[i / kBlock];
    int code[kEach];
    load_codes<kBits>(a.from.codes, i, code);
    float values[kEach] = {};
    if (a.add) load8<kType>(a.out, i, a.count, wide, values);
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const float value = BlockCodeRule::value(code[k], scale);
      values[k] = a.add ? values[k] + value : value;
    }
    store8<kType>(a.out, i, a.count, wide, values);
  }
}

// Calls `launch` with the kernel's constants as types.
template <int kValue>
using Constant = std::integral_constant<int, kValue>;

template <ElementType kType, class Launch>
cudaError_t with_format(const BlockCodes& codes, Launch launch) {
  using Type = std::integral_constant<ElementType, kType>;
  if (codes.bits == 8 && codes.block == 256) return launch(Type(), Constant<8>(), Constant<256>());
  if (codes.bits == 8 && codes.block == 64) return launch(Type(), Constant<8>(), Constant<64>());
  if (codes.bits == 4 && codes.block == 256) return launch(Type(), Constant<4>(), Constant<256>());
  if (codes.bits == 4 && codes.block == 64) return launch(Type(), Constant<4>(), Constant<64>());
  return cudaErrorInvalidValue;
}

template <class Launch>
cudaError_t with_constants(ElementType type, const BlockCodes& codes, Launch launch) {
  switch (type) {
    case ElementType::kFloat32:
      return with_format<ElementType::kFloat32>(codes, launch);
    case ElementType::kBFloat16:
      return with_format<ElementType::kBFloat16>(codes, launch);
    case ElementType::kFloat16:
      return with_format<ElementType::kFloat16>(codes, launch);
  }
  return cudaErrorInvalidValue;
}

bool on_16_bytes(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

}  // namespace

cudaError_t launch_quantize(const QuantizeArguments& a, cudaStream_t stream) {
  if (a.count == 0) return cudaSuccess;
  return with_constants(a.type, a.to, [&](auto type, auto bits, auto block) {
    const size_t num_eights = (a.count + block - 1) / block * block / kEach;  // of whole blocks
    quantize_kernel<type, bits, block><<<num_blocks(num_eights, 1), kThreads, 0, stream>>>(
        a, num_eights, on_16_bytes(a.values), on_16_bytes(a.error));
    return cudaGetLastError();
  });
}

cudaError_t launch_dequantize(const DequantizeArguments& a, cudaStream_t stream) {
  if (a.count == 0) return cudaSuccess;
  if (a.add && a.type != ElementType::kFloat32) return cudaErrorInvalidValue;
  return with_constants(a.type, a.from, [&](auto type, auto bits, auto block) {
    const size_t num_eights = (a.count + kEach - 1) / kEach;
    dequantize_kernel<type, bits, block>
        <<<num_blocks(num_eights, 1), kThreads, 0, stream>>>(a, num_eights, on_16_bytes(a.out));
    return cudaGetLastError();
  });
}

}  // namespace dslaunch::kernels
