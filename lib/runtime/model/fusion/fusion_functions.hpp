// The function table that the CUDA module provides for generated kernels.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace dslaunch::runtime::model::fusion {

struct FusionFunctions {
  // "sm_90", of the device of a tensor.
  std::string (*architecture)(const at::Tensor& tensor);
  // Loads a cubin for good and returns the kernel of that name in it; for the tensor's device.
  void* (*load)(const std::string& cubin, const char* kernel, const at::Tensor& tensor);
  // `arguments`: the kernel's only parameter. On the current stream of the tensor's device.
  void (*launch)(void* kernel, uint32_t blocks, uint32_t threads, const void* arguments, const at::Tensor& tensor);
  // sums[columns] = the sums of the columns of partials[number][columns], fp32.
  void (*column_totals)(const at::Tensor& partials, const at::Tensor& sums);
};

}  // namespace dslaunch::runtime::model::fusion
