// The numbers of a data file's row in the type that a batch has them in. Pure; any thread.
#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>

namespace dslaunch::runtime {

// What a batch makes of numbers that a file holds as `dtype`: floating point becomes `float_dtype`. LibTorch's
// operators have no unsigned types beyond 8 bits, so those become int64. All else stays.
at::ScalarType batch_dtype(at::ScalarType dtype, at::ScalarType float_dtype);

// `to_dtype` is batch_dtype() of `from_dtype`, and another type.
void convert_row(const void* from, at::ScalarType from_dtype, void* to, at::ScalarType to_dtype, int64_t count);

}  // namespace dslaunch::runtime
