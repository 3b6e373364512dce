// Arrays as 8-bit or 4-bit integers with one fp32 scale for each block of 64 or 256 elements, as ZeRO++ sends them. The
// arithmetic: block_code_rules.h. See block_codes.cu.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/element_type.h"

namespace dslaunch::kernels {

struct BlockCodes {
  float* scales = nullptr;   // [blocks]
  uint8_t* codes = nullptr;  // [blocks * block * bits / 8], 4-byte aligned; of two 4-bit codes the first is low
  int bits = 8;              // 8 or 4
  int block = 256;           // 64 or 256
};

struct QuantizeArguments {
  const void* values = nullptr;
  ElementType type = ElementType::kFloat32;
  size_t count = 0;         // the last block is padded with zeros
  float* error = nullptr;   // [count], or null: is added to the values, and receives the new quantization error
  float error_beta = 0.0F;  // weight of the past error
  BlockCodes to;
};

struct DequantizeArguments {
  BlockCodes from;
  void* out = nullptr;
  ElementType type = ElementType::kFloat32;
  size_t count = 0;
  bool add = false;  // to the contents of out: fp32 only
};

// Both enqueue on `stream`; any alignment of values and out. Return cudaErrorInvalidValue for other bits or blocks.
cudaError_t launch_quantize(const QuantizeArguments& arguments, cudaStream_t stream);
cudaError_t launch_dequantize(const DequantizeArguments& arguments, cudaStream_t stream);

}  // namespace dslaunch::kernels
