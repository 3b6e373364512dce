// The collectives of sharding over flat tensors: reduce to the owners of slices, gather from the owners. Tensors are
// 1-D and contiguous; a flat tensor splits evenly among the ranks of `group`, rank r owns the r-th slice.
#pragma once
#include <ATen/core/Tensor.h>

#include "comm/communicator.hpp"

namespace dslaunch::runtime {

// fp32, bf16, fp16, int64 and bytes.
comm::Buffer buffer_of(const at::Tensor& tensor);

at::Tensor own_slice(const at::Tensor& flat, const comm::Communicator& group);

// Afterwards this rank's slice of `flat` is the sum over the ranks; the rest is undefined. Without `scatter` it uses an
// all-reduce.
void reduce_to_owners(const at::Tensor& flat, comm::Communicator& group, bool scatter);
// Every rank contributes its slice (`shard`, which may be that slice of `flat`); afterwards `flat` is complete. Without
// `all_gather` every owner broadcasts its slice.
void gather_from_owners(const at::Tensor& shard, const at::Tensor& flat, comm::Communicator& group, bool all_gather);

}  // namespace dslaunch::runtime
