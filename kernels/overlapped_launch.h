// Launches of kernels that may start while the kernel before them on the stream still runs (programmatic dependent
// launch): they load what no kernel of the stream writes, weights above all, and wait with the rest. From sm_90 on;
// elsewhere kernels start one after the other as ever.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

namespace dslaunch::kernels {

// `overlaps`: the kernel may start early. It has to call wait_for_earlier_kernels() in all threads that read what
// others have written or that write themselves.
inline cudaError_t launch_overlapped(const void* kernel, dim3 blocks, unsigned threads, size_t shared_bytes,
                                     cudaStream_t stream, void** parameters, bool overlaps) {
  if (overlaps) {
    int device = 0, major = 0;
    cudaError_t result = cudaGetDevice(&device);
    if (result == cudaSuccess) {
      result = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    }
    if (result != cudaSuccess) return result;
    overlaps = major >= 9;
  }
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = overlaps ? 1 : 0;
  return cudaLaunchKernelExC(&config, kernel, parameters);
}

#ifdef __CUDACC__
// Behind it everything is visible that kernels before this one on the stream have written.
__device__ inline void wait_for_earlier_kernels() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel may start as soon as all blocks of this one have come here or have ended.
__device__ inline void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
#endif

}  // namespace dslaunch::kernels
