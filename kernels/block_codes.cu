#include "kernels/block_code_rules.h"
#include "kernels/block_codes.h"
#include "kernels/eight_elements.cuh"
#include "kernels/launch_shape.cuh"
#include "kernels/with_type.cuh"

namespace dslaunch::kernels {
namespace {

// A thread handles eight consecutive elements of a block, so that their 4-bit codes form one word.
//
// Stores eight codes from element i on: two words of 8-bit codes, or one word of 4-bit codes, each with 8 added.
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
  constexpr int kLanes = kBlock / kEach;  // threads of one block of elements, adjacent in a warp
  constexpr int kLargest = (1 << (kBits - 1)) - 1;
  // All threads of a warp run the same number of iterations: the shuffles require it.
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
      error[k] = BlockCodeRule::next_error(error[k], values[k] - BlockCodeRule::value(code[k], scale), a.error_beta);
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
  return with_type(type, [&](auto constant) { return with_format<decltype(constant)::value>(codes, launch); });
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
