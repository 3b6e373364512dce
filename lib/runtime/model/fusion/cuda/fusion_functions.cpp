// Generated kernels with the CUDA runtime's libraries of device code. Part of the CUDA module.
#include "runtime/model/fusion/executor.hpp"

#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime.h>

#include "base/format.hpp"
#include "kernels/column_sums.h"
#include "kernels/overlapped_launch.h"
#include "runtime/device/cuda/function_tables.hpp"
#include "runtime/device/cuda/launch.hpp"

namespace dslaunch::runtime::model::fusion {
namespace {

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  comm::check_cuda(cudaDeviceGetAttribute(&value, which, device),
                   fmt::format("ask device {} for its properties", device));
  return value;
}

std::string architecture_of(const at::Tensor& tensor) {
  const int device = tensor.device().index();
  return fmt::format("sm_{}{}", attribute(cudaDevAttrComputeCapabilityMajor, device),
                     attribute(cudaDevAttrComputeCapabilityMinor, device));
}

void* load_kernel(const std::string& cubin, const char* name, const at::Tensor& tensor) {
  const c10::cuda::CUDAGuard guard(tensor.device());
  cudaLibrary_t library = nullptr;
  cudaKernel_t kernel = nullptr;
  comm::check_cuda(cudaLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
                   fmt::format("load a generated kernel of {} bytes", cubin.size()));
  comm::check_cuda(cudaLibraryGetKernel(&kernel, library, name), "find the kernel in generated code");
  return kernel;
}

void launch_kernel(void* kernel, uint32_t blocks, uint32_t threads, const void* arguments, const at::Tensor& tensor,
                   bool overlaps) {
  const c10::cuda::CUDAGuard guard(tensor.device());
  void* parameters[] = {const_cast<void*>(arguments)};
  check_launch(kernels::launch_overlapped(kernel, dim3(blocks), threads, 0, stream_of(tensor), parameters, overlaps),
               "generated for a region", tensor);
}

void column_totals_on_device(const at::Tensor& partials, const at::Tensor& sums) {
  const c10::cuda::CUDAGuard guard(partials.device());
  check_launch(kernels::launch_column_totals(partials.const_data_ptr<float>(), static_cast<size_t>(partials.size(0)),
                                             static_cast<size_t>(partials.size(1)), sums.mutable_data_ptr(),
                                             element_type(sums.scalar_type()), stream_of(sums)),
               "column totals", partials);
}

}  // namespace

const FusionFunctions kFusionFunctions{architecture_of, load_kernel, launch_kernel, column_totals_on_device};

}  // namespace dslaunch::runtime::model::fusion
