// The CUDA module's function table for lib/runtime/state. Part of the CUDA module, never of dsworker itself.
#include "runtime/state/random_functions.hpp"

#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>

#include <map>
#include <mutex>

#include "runtime/state/cuda/generator_state.hpp"

namespace dslaunch::runtime {

const c10::intrusive_ptr<at::CUDAGeneratorState>& generator_state(c10::Device device) {
  using States = std::map<c10::DeviceIndex, c10::intrusive_ptr<at::CUDAGeneratorState>>;
  static std::mutex mutex;
  static auto& states = *new States;  // never destroyed: it holds memory of a device
  const std::lock_guard lock(mutex);
  auto& state = states[device.index()];
  if (state) return state;
  at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator(device.index());
  const std::lock_guard generator_lock(generator.mutex());
  const auto* current = generator.get<at::CUDAGeneratorImpl>();
  state = c10::make_intrusive<at::CUDAGeneratorState>(current->current_seed(), current->philox_offset_per_thread());
  generator.graphsafe_set_state(at::Generator(c10::make_intrusive<at::CUDAGeneratorImpl>(device.index(), state)));
  return state;
}

namespace {

bool is_capturing(c10::Device device) {
  const c10::cuda::CUDAGuard guard(device);
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

uint64_t captured_offset(c10::Device device) {
  return generator_state(device)->offset_intragraph_;
}

void set_captured_offset(c10::Device device, uint64_t offset) {
  generator_state(device)->offset_intragraph_ = offset;
}

constexpr RandomFunctions kFunctions{is_capturing, captured_offset, set_captured_offset};

}  // namespace
}  // namespace dslaunch::runtime

extern "C" __attribute__((visibility("default"))) const dslaunch::runtime::RandomFunctions*
dslaunch_cuda_random_functions() {
  return &dslaunch::runtime::kFunctions;
}
