// ZeRO++: collectives that send parameters and gradients as 8-bit or 4-bit integers (quantized_codec.hpp). They only
// enqueue, as the communicator does. One thread per communicator.
#pragma once
#include <ATen/core/Tensor.h>

#include "comm/communicator.hpp"
#include "runtime/sharding/quantized_codec.hpp"

namespace dslaunch::runtime {

// Every rank receives every rank's part as quantize() rounds it: the same bits everywhere, this rank's own part
// included. out.numel() == size * shard.numel(); 1-D, floating point; `shard` may be this rank's part of `out`.
void quantized_all_gather(comm::Communicator& group, const at::Tensor& shard, const at::Tensor& out,
                          WireFormat format = kWeightWire);
// The same, with `own` being this rank's part already quantized by quantize().
void all_gather_quantized(comm::Communicator& group, const at::Tensor& own, const at::Tensor& out,
                          WireFormat format = kWeightWire);

// Rank r gets the r-th slice of the sum over all ranks. Slices from other ranks were quantized once, this rank's own
// slice is exact, and the slices are added in fp32 in rank order. in.numel() == size * out.numel(). `feedback`: null,
// or this rank's own for tensors of this size.
void quantized_reduce_scatter(comm::Communicator& group, const at::Tensor& in, const at::Tensor& out,
                              WireFormat format = kGradientWire, ErrorFeedback* feedback = nullptr);

}  // namespace dslaunch::runtime
