#include "comm/nccl/device_errors.hpp"

#include <string>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/resource_error.hpp"

namespace dslaunch::comm {

void check_cuda(cudaError_t outcome, std::string_view doing) {
  if (outcome == cudaSuccess) return;
  throw_if_resource_failed(fmt::format("CUDA error: {}", ::cudaGetErrorString(outcome)), std::string(doing));
  throw Error(ExitCode::kInternal, fmt::format("CUDA failed in: {} ({}: {})", doing, ::cudaGetErrorName(outcome),
                                               ::cudaGetErrorString(outcome)));
}

}  // namespace dslaunch::comm
