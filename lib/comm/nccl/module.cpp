// The exports of libdslaunch_cuda.so for this room. Other rooms add their own sources to the module.
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "base/error.hpp"
#include "comm/nccl/communicator.hpp"
#include "comm/nccl/device_errors.hpp"
#include "comm/nccl/no_device.hpp"

extern "C" {

__attribute__((visibility("default"))) const char* dslaunch_module_version() {
  return DSL_VERSION;
}

__attribute__((visibility("default"))) dslaunch::comm::Communicator* dslaunch_make_nccl(
    const dslaunch::comm::CommunicatorOptions& options, dslaunch::rendezvous::Store& store) {
  return new dslaunch::comm::NcclCommunicator(options, store);
}

// Returns at least one; throws UserError(69) that explains why there is no device.
__attribute__((visibility("default"))) int dslaunch_count_devices() {
  using namespace dslaunch;
  int count = 0;
  comm::NoDevice found{.result = ::cudaGetDeviceCount(&count)};
  if (found.result == cudaSuccess && count > 0) return count;
  ::cudaDriverGetVersion(&found.driver);
  ::cudaRuntimeGetVersion(&found.library);
  found.text = ::cudaGetErrorString(found.result);
  throw UserError(ExitCode::kUnavailable, comm::why_no_device(found) + ". Use --device cpu to run without GPUs");
}

__attribute__((visibility("default"))) void dslaunch_copy_on_device(void* to, const void* from, size_t bytes,
                                                                    int device) {
  auto stream = c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device));
  dslaunch::comm::check_cuda(::cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream.stream()),
                             "copy on the device");
}

// Null, or why the memory cannot be page-locked.
__attribute__((visibility("default"))) const char* dslaunch_page_lock(void* address, size_t bytes, int device) {
  int current = 0;
  ::cudaGetDevice(&current);
  ::cudaSetDevice(device);
  const cudaError_t result = ::cudaHostRegister(address, bytes, cudaHostRegisterPortable);
  ::cudaSetDevice(current);
  if (result == cudaSuccess) return nullptr;
  ::cudaGetLastError();  // so that a later call does not report this refusal
  return ::cudaGetErrorString(result);
}

__attribute__((visibility("default"))) void dslaunch_page_unlock(void* address) {
  ::cudaHostUnregister(address);
}

__attribute__((visibility("default"))) void dslaunch_wait_for_device(int device) {
  auto stream = c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device));
  dslaunch::comm::check_cuda(::cudaStreamSynchronize(stream.stream()), "wait for the device");
}
}
