// The function table that the CUDA module provides for fp8. dsworker does not link CUDA: the first matrix in fp8 on a
// GPU loads the module.
#pragma once
#include <c10/core/Device.h>

#include "runtime/device/fp8.hpp"

namespace dslaunch::runtime::device {

struct Fp8Functions {
  int (*compute_capability)(at::Device device);  // 90 for 9.0
  // to_fp8() of a contiguous matrix. `maximum`: noted_maximum() of it, undefined: not known.
  Fp8Pair (*cast)(const at::Tensor& matrix, const Fp8Cast& cast, const at::Tensor& maximum);
};

}  // namespace dslaunch::runtime::device
