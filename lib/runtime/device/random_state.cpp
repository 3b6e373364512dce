#include "runtime/device/random_state.hpp"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <cstring>

#include "base/error.hpp"
#include "runtime/device/device_module.hpp"

namespace dslaunch::runtime::device {
namespace {

at::Tensor captured_state_of(at::Device device) {
  const uint64_t offset = module().captured_offset(device);
  at::Tensor state = at::empty({sizeof offset}, at::kByte);
  std::memcpy(state.data_ptr(), &offset, sizeof offset);
  return state;
}

void set_captured_state_of(at::Device device, const at::Tensor& state) {
  uint64_t offset = 0;
  DSL_CHECK(state.numel() == sizeof offset, "random numbers of a capture continue within it");
  std::memcpy(&offset, state.const_data_ptr(), sizeof offset);
  module().set_captured_offset(device, offset);
}

at::Tensor state_of(at::Device device) {
  if (is_capturing(device)) return captured_state_of(device);
  auto generator = at::globalContext().defaultGenerator(device);
  std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_state_of(at::Device device, const at::Tensor& state) {
  if (is_capturing(device)) return set_captured_state_of(device, state);
  auto generator = at::globalContext().defaultGenerator(device);
  std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace

void seed_random_state(uint64_t seed, int rank, at::Device device) {
  const uint64_t own = seed + static_cast<uint64_t>(rank);
  for (auto one : {at::Device(at::kCPU), device}) {
    auto generator = at::globalContext().defaultGenerator(one);
    std::lock_guard lock(generator.mutex());
    generator.set_current_seed(own);
  }
}

at::Tensor save_random_state(at::Device device) {
  at::Tensor host = state_of(at::kCPU);
  return device.is_cpu() ? host.clone() : at::cat({host, state_of(device)});
}

void restore_random_state(const at::Tensor& state, at::Device device) {
  const int64_t host_size = state_of(at::kCPU).numel();
  set_state_of(at::kCPU, state.narrow(0, 0, host_size).clone());
  const int64_t rest = state.numel() - host_size;
  if (!device.is_cpu() && rest > 0) set_state_of(device, state.narrow(0, host_size, rest).clone());
}

}  // namespace dslaunch::runtime::device
