// Element-wise reduction of several inputs in the given order into `out`, which may be one of the inputs.
// Half-precision elements are widened, reduced in float32 and rounded once, to nearest even. A NaN stays NaN, also in a
// maximum.
#pragma once
#include <cstddef>

#include "comm/communicator.hpp"

namespace dslaunch::comm {

void reduce_in_order(const void* const* inputs, size_t num_inputs, void* out, size_t count, DType dtype, ReduceOp op);

}  // namespace dslaunch::comm
