// Converts the numbers of a data file's row to the type that they have in a batch. Pure; any thread.
#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>

namespace dslaunch::runtime {

// The batch's type for numbers that a file holds as `dtype`: floating point becomes `float_dtype`. LibTorch's operators
// do not support unsigned types beyond 8 bits, so those become int64, as do all integers of an array that holds indices
// or class labels (`is_index`), of which many operators take no other type. All other types stay.
at::ScalarType batch_dtype(at::ScalarType dtype, at::ScalarType float_dtype, bool is_index = false);

// `to_dtype` is batch_dtype() of `from_dtype`, and differs from it.
void convert_row(const void* from, at::ScalarType from_dtype, void* to, at::ScalarType to_dtype, int64_t count);

}  // namespace dslaunch::runtime
