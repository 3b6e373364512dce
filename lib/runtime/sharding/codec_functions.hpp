// What the CUDA module does for quantized_codec.hpp: a table of functions. dsworker links no CUDA, so the first tensor
// on CUDA opens the module and asks it for the table.
#pragma once
#include "runtime/sharding/quantized_codec.hpp"

namespace dslaunch::runtime {

// Both enqueue on the current stream of the tensors' device and return; sizes and devices were checked by the caller,
// and the type is fp32, bf16 or fp16. A launch that fails throws Error.
struct CodecFunctions {
  void (*quantize)(const at::Tensor& values, WireFormat format, const at::Tensor& wire, const Feedback* feedback);
  void (*dequantize)(const at::Tensor& wire, WireFormat format, const at::Tensor& out, bool add);
};

// The name of the module's function `extern "C" const CodecFunctions* f()`.
inline constexpr const char* kCodecFunctionsSymbol = "dslaunch_cuda_codec_functions";

// Any thread. Throws UserError 69 when there is no CUDA module to open.
const CodecFunctions& codec_functions();

}  // namespace dslaunch::runtime
