// Shared by the CUDA module's function tables: maps a tensor to a kernel's stream and types. For sources of the module
// only.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

#include <string>

#include "base/error.hpp"
#include "comm/nccl/device_errors.hpp"
#include "kernels/element_type.h"

namespace dslaunch::runtime {

inline cudaStream_t stream_of(const at::Tensor& tensor) {
  return c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream();
}

inline void check_launch(cudaError_t result, const char* kernel, const at::Tensor& tensor) {
  if (result == cudaSuccess) return;
  comm::check_cuda(result, std::string("launch the kernel ") + kernel + " on " + tensor.device().str() + " over " +
                               std::to_string(tensor.numel()) + " elements");
}

inline kernels::ElementType element_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return kernels::ElementType::kFloat32;
    case at::kBFloat16:
      return kernels::ElementType::kBFloat16;
    case at::kHalf:
      return kernels::ElementType::kFloat16;
    default:
      throw InternalError(__FILE__, __LINE__, "element_type", std::string("no kernel for ") + at::toString(type));
  }
}

}  // namespace dslaunch::runtime
