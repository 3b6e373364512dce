#include "runtime/engine/setup/device_warm_up.hpp"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <chrono>

#include "base/log.hpp"

namespace dslaunch::runtime::engine::setup {

DeviceWarmUp::DeviceWarmUp(at::Device device, at::ScalarType dtype) {
  if (device.is_cpu()) return;
  thread_ = std::jthread([this, device, dtype] {
    const auto began = std::chrono::steady_clock::now();
    try {
      const c10::DeviceGuard guard(device);
      const at::NoGradGuard no_grad;
      const at::Tensor a = at::ones({64, 64}, at::TensorOptions().device(device).dtype(dtype));
      at::mm(a, a).cpu();
      seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    } catch (const std::exception& error) {
      log::debug("the device was not warmed up: {}", error.what());
    }
  });
}

std::optional<double> DeviceWarmUp::wait() {
  if (thread_.joinable()) thread_.join();
  return seconds_;
}

}  // namespace dslaunch::runtime::engine::setup
