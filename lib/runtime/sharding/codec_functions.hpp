// The table of functions that the CUDA module provides for quantized_codec.hpp. dsworker does not link CUDA: the first
// tensor on CUDA loads the module and gets the table from it.
#pragma once
#include "runtime/sharding/quantized_codec.hpp"

namespace dslaunch::runtime {

// Both enqueue on the current stream of the tensors' device and return. The caller has checked sizes and devices, and
// that the type is fp32, bf16 or fp16. A failed kernel launch throws Error.
struct CodecFunctions {
  void (*quantize)(const at::Tensor& values, WireFormat format, const at::Tensor& wire, const Feedback* feedback);
  void (*dequantize)(const at::Tensor& wire, WireFormat format, const at::Tensor& out, bool add);
};

}  // namespace dslaunch::runtime
