// The table that dsworker gets from the CUDA module. Part of the module, never of dsworker itself.
#include "runtime/device/device_module.hpp"

#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>

#include "runtime/device/cuda/function_tables.hpp"
#include "runtime/device/cuda/generator_state.hpp"

namespace dslaunch::runtime::device {
namespace {

bool is_capturing_on_device(c10::Device device) {
  const c10::cuda::CUDAGuard guard(device);
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

uint64_t captured_offset(c10::Device device) {
  return generator_state(device)->offset_intragraph_;
}

void set_captured_offset(c10::Device device, uint64_t offset) {
  generator_state(device)->offset_intragraph_ = offset;
}

constexpr DeviceModule kModule{.is_capturing = is_capturing_on_device,
                               .captured_offset = captured_offset,
                               .set_captured_offset = set_captured_offset,
                               .gemm = kGemmFunctions,
                               .fp8 = kFp8Functions,
                               .codec = kCodecFunctions,
                               .optim = optim::kDeviceFunctions,
                               .decoding = model::decoding::kDecodingFunctions,
                               .layers = model::layers::kLayerFunctions,
                               .fusion = model::fusion::kFusionFunctions,
                               .graphs = engine::step::kGraphFunctions};

}  // namespace
}  // namespace dslaunch::runtime::device

extern "C" __attribute__((visibility("default"))) const dslaunch::runtime::device::DeviceModule*
dslaunch_cuda_device_module() {
  return &dslaunch::runtime::device::kModule;
}
