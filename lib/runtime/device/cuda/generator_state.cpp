#include "runtime/device/cuda/generator_state.hpp"

#include <map>
#include <mutex>

namespace dslaunch::runtime::device {

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

}  // namespace dslaunch::runtime::device
