// What libdslaunch_cuda.so exports for this room. Other rooms add sources of their own to the module.
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "comm/nccl/communicator.hpp"
#include "comm/nccl/device_errors.hpp"

extern "C" {

__attribute__((visibility("default"))) const char* dslaunch_module_version() {
  return DSL_VERSION;
}

__attribute__((visibility("default"))) dslaunch::comm::Communicator* dslaunch_make_nccl(
    const dslaunch::comm::CommunicatorOptions& options, dslaunch::rendezvous::Store& store) {
  return new dslaunch::comm::NcclCommunicator(options, store);
}

__attribute__((visibility("default"))) void dslaunch_copy_on_device(void* to, const void* from, size_t bytes,
                                                                    int device) {
  auto stream = c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device));
  dslaunch::comm::check_cuda(::cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream.stream()),
                             "copy on the device");
}

__attribute__((visibility("default"))) void dslaunch_wait_for_device(int device) {
  auto stream = c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device));
  dslaunch::comm::check_cuda(::cudaStreamSynchronize(stream.stream()), "wait for the device");
}
}
