// ZeRO++: parameters and gradients that travel as 8-bit or 4-bit integers. A flat tensor is cut into blocks; each block
// has one fp32 scale, the largest magnitude in it divided by the largest code, and its elements are multiples of that
// scale: |x - dequantize(quantize(x))| <= scale / 2 (and a rounding of fp32). A block that holds an infinity or a NaN
// comes out without a finite element, so an overflow is not lost on the way.
//
// All functions work on any device and enqueue only; nothing waits for the device. One thread a communicator.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"

namespace dslaunch::runtime {

struct WireFormat {
  int bits = 8;         // 8 or 4
  int64_t block = 256;  // elements that share a scale; even

  int largest_code() const { return (1 << (bits - 1)) - 1; }
};
inline constexpr WireFormat kWeightWire{8, 256};    // zero_quantized_weights
inline constexpr WireFormat kGradientWire{4, 256};  // zero_quantized_gradients

// Bytes of `numel` elements on the wire: scales first, then codes; whole blocks.
int64_t wire_bytes(int64_t numel, WireFormat format);

// `values`: 1-D, floating point. Returns wire_bytes() bytes (uint8, 1-D, contiguous) on the same device.
at::Tensor quantize(const at::Tensor& values, WireFormat format);
// Fills `out` (1-D, floating point) with what was quantized; `wire` has wire_bytes(out.numel()) bytes.
void dequantize(const at::Tensor& wire, WireFormat format, at::Tensor out);

// What quantization lost, given back at the next step (LoCo): the error that is kept is a moving average with the
// weight `beta` for the past, and starts again from zero after `reset_interval` uses.
class ErrorFeedback {
 public:
  ErrorFeedback(double beta, int64_t reset_interval) : beta_(beta), reset_interval_(reset_interval) {}
  // As quantize(), of the values with the error of before; keeps what this one lost. The same size at every call.
  at::Tensor quantize(const at::Tensor& values, WireFormat format);

 private:
  const double beta_;
  const int64_t reset_interval_;
  int64_t num_uses_ = 0;
  at::Tensor error_;  // fp32
};

// All ranks get the parts of all, as quantize() rounds them: the same bits everywhere, this rank's own part included.
// out.numel() == size * shard.numel(); 1-D, floating point; `shard` may be this rank's part of `out`.
void quantized_all_gather(comm::Communicator& group, const at::Tensor& shard, at::Tensor out,
                          WireFormat format = kWeightWire);
// The same where `own` is what quantize() once made of this rank's part.
void all_gather_quantized(comm::Communicator& group, const at::Tensor& own, at::Tensor out,
                          WireFormat format = kWeightWire);

// Rank r gets the r-th slice of the sum over all ranks; what comes from others was quantized once, this rank's own
// slice is exact, and the slices are added in fp32 in the order of the ranks. in.numel() == size * out.numel().
// `feedback`: null, or this rank's own for tensors of this size.
void quantized_reduce_scatter(comm::Communicator& group, const at::Tensor& in, at::Tensor out,
                              WireFormat format = kGradientWire, ErrorFeedback* feedback = nullptr);

// Whom `rank` meets in each round so that all pairs meet once and everybody meets at most one at a time; -1: nobody.
std::vector<int> meeting_order(int rank, int size);

}  // namespace dslaunch::runtime
