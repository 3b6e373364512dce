// ZeRO++: parameters and gradients that travel as 8-bit or 4-bit integers (quantized_codec.hpp). Enqueue only, as the
// communicator does. One thread a communicator.
#pragma once
#include <ATen/core/Tensor.h>

#include "comm/communicator.hpp"
#include "runtime/sharding/quantized_codec.hpp"

namespace dslaunch::runtime {

// All ranks get the parts of all, as quantize() rounds them: the same bits everywhere, this rank's own part included.
// out.numel() == size * shard.numel(); 1-D, floating point; `shard` may be this rank's part of `out`.
void quantized_all_gather(comm::Communicator& group, const at::Tensor& shard, const at::Tensor& out,
                          WireFormat format = kWeightWire);
// The same where `own` is what quantize() once made of this rank's part.
void all_gather_quantized(comm::Communicator& group, const at::Tensor& own, const at::Tensor& out,
                          WireFormat format = kWeightWire);

// Rank r gets the r-th slice of the sum over all ranks; what comes from others was quantized once, this rank's own
// slice is exact, and the slices are added in fp32 in the order of the ranks. in.numel() == size * out.numel().
// `feedback`: null, or this rank's own for tensors of this size.
void quantized_reduce_scatter(comm::Communicator& group, const at::Tensor& in, const at::Tensor& out,
                              WireFormat format = kGradientWire, ErrorFeedback* feedback = nullptr);

}  // namespace dslaunch::runtime
