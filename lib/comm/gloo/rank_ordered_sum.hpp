// Element-wise reduction of several inputs in the order given, into `out`, which may be one of them. Half-precision
// elements are widened, reduced in float32 and rounded once, to nearest even. A NaN stays a NaN, in the maximum too.
#pragma once
#include <cstddef>

#include "comm/communicator.hpp"

namespace dslaunch::comm {

void reduce_in_order(const void* const* inputs, size_t num_inputs, void* out, size_t count, DType dtype, ReduceOp op);

}  // namespace dslaunch::comm
