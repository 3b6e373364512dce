// Arrays as 8-bit or 4-bit whole numbers with one fp32 scale for each block of 64 or 256 elements: what ZeRO++ sends.
// The arithmetic: block_code_rules.h. See block_codes.cu.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/element_type.h"

namespace dslaunch::kernels {

struct BlockCodes {
  float* scales = nullptr;   // [blocks]
  uint8_t* codes = nullptr;  // [blocks * block * bits / 8] from a 4-byte boundary on; of 4 bits the first in the low half
  int bits = 8;              // 8 or 4
  int block = 256;           // 64 or 256
};

struct QuantizeArguments {
  const void* values = nullptr;
  ElementType type = ElementType::kFloat32;
  size_t count = 0;         // the last block is filled up with zeros
  float* error = nullptr;   // [count], or null: is added to the values, and gets what is lost now
  float error_beta = 0.0F;  // its weight for the past
  BlockCodes to;
};

struct DequantizeArguments {
  BlockCodes from;
  void* out = nullptr;
  ElementType type = ElementType::kFloat32;
  size_t count = 0;
  bool add = false;  // to what is there: fp32 only
};

// Both enqueue on `stream`; any alignment of values and out. cudaErrorInvalidValue for other bits and blocks.
cudaError_t launch_quantize(const QuantizeArguments& arguments, cudaStream_t stream);
cudaError_t launch_dequantize(const DequantizeArguments& arguments, cudaStream_t stream);

}  // namespace dslaunch::kernels
