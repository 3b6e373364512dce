// Converts CUDA and NCCL errors into our errors.
#pragma once
#include <cuda_runtime_api.h>

#include <string_view>

namespace dslaunch::comm {

// Throws the error that base/resource_error.hpp recognises; otherwise Error(70) that names the call, CUDA's name of the
// error and its text.
void check_cuda(cudaError_t outcome, std::string_view doing);

}  // namespace dslaunch::comm
