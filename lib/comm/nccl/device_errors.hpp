// What CUDA and NCCL answered, as our errors.
#pragma once
#include <cuda_runtime_api.h>

#include <string_view>

namespace dslaunch::comm {

// What base/resource_error.hpp says of the machine; else Error(70) that names the call, CUDA's name of the error and
// its text.
void check_cuda(cudaError_t outcome, std::string_view doing);

}  // namespace dslaunch::comm
