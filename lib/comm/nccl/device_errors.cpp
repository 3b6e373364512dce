#include "comm/nccl/device_errors.hpp"

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::comm {

void check_cuda(cudaError_t outcome, std::string_view doing) {
  if (outcome == cudaSuccess) return;
  throw Error(ExitCode::kInternal, fmt::format("CUDA failed in: {} ({}: {})", doing, ::cudaGetErrorName(outcome),
                                               ::cudaGetErrorString(outcome)));
}

}  // namespace dslaunch::comm
