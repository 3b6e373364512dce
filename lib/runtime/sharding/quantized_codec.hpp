// ZeRO++'s quantization: a flat tensor as 8-bit or 4-bit integers. The tensor is cut into blocks; each block has one
// fp32 scale, its largest magnitude divided by the largest code, and its elements are multiples of that scale:
// |x - dequantize(quantize(x))| <= scale / 2 (plus one fp32 rounding; blocks of values below 2^-119 become zeros). A
// block that holds an infinity or a NaN comes out without a finite element, so an overflow is not lost in transit. The
// result has the same bits on any device.
//
// Tensors are 1-D and contiguous, on any device. All functions only enqueue and never wait for the device. Any thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dslaunch::runtime {

struct WireFormat {
  int bits = 8;         // 8 or 4
  int64_t block = 256;  // elements that share a scale: 64 or 256

  int largest_code() const { return (1 << (bits - 1)) - 1; }
};
inline constexpr WireFormat kWeightWire{8, 256};   // zero_quantized_weights
inline constexpr WireFormat kGradientWire{4, 64};  // zero_quantized_gradients

// Bytes of `numel` elements on the wire: scales first, then codes; whole blocks. A multiple of 4.
int64_t wire_bytes(int64_t numel, WireFormat format);

// The quantization error, added back the next time (LoCo): `error` (fp32, as many elements as the values) is added to
// the values and then becomes a moving average of the error, in which the past has the weight `beta`.
struct Feedback {
  at::Tensor error;
  double beta = 0.0;

  Feedback part(int64_t begin, int64_t count) const { return {error.narrow(0, begin, count), beta}; }
};

// `values`: floating point. `wire`: wire_bytes() bytes (uint8) on the same device, aligned to 4 bytes.
void quantize(const at::Tensor& values, WireFormat format, const at::Tensor& wire, const Feedback* feedback = nullptr);
at::Tensor quantize(const at::Tensor& values, WireFormat format);

// Fills `out` (floating point) with the dequantized values; `wire` has wire_bytes(out.numel()) bytes.
void dequantize(const at::Tensor& wire, WireFormat format, const at::Tensor& out);
// Adds the dequantized values to `sum` (fp32) in one pass.
void add_dequantized(const at::Tensor& wire, WireFormat format, const at::Tensor& sum);

// The error of one tensor that is sent repeatedly; reset to zero after `reset_interval` uses.
class ErrorFeedback {
 public:
  ErrorFeedback(double beta, int64_t reset_interval) : beta_(beta), reset_interval_(reset_interval) {}
  // Call once before `values` are quantized, whole or in parts. The size must be the same in every call.
  Feedback next(const at::Tensor& values);

 private:
  const double beta_;
  const int64_t reset_interval_;
  int64_t num_uses_ = 0;
  at::Tensor error_;
};

}  // namespace dslaunch::runtime
