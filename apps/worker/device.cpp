#include "device.hpp"

#include <ATen/Context.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sys/stat.h>

#include <cstdlib>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "comm/modules.hpp"
#include "driver_start.hpp"
#include "runtime/telemetry/memory_breakdown.hpp"

namespace dslaunch::worker {
namespace {

bool has_driver() {
  struct stat status {};
  return ::stat("/dev/nvidiactl", &status) == 0;
}

// Pinned host memory for copies is mapped by several threads at once and then registered, which is three times as fast
// as allocation by the driver and does not block kernel launches on other threads. A user's settings take precedence.
void choose_pinned_memory() {
  if (std::getenv("PYTORCH_CUDA_ALLOC_CONF") != nullptr || std::getenv("PYTORCH_ALLOC_CONF") != nullptr) return;
  c10::CachingAllocator::setAllocatorSettings("pinned_use_cuda_host_register:True,pinned_num_register_threads:8");
}

at::Device first_cuda_device(const rendezvous::LaunchEnv& env, const std::function<void(const char*)>& ended = {}) {
  const auto& module = comm::cuda_module();
  if (ended) ended("loading the CUDA libraries");
  wait_for_driver();
  const int count = module.function<int (*)()>("dslaunch_count_devices")();
  if (ended) ended("waiting for the GPU's driver");
  if (count != 1 && env.local_rank >= count) {
    throw UserError(ExitCode::kUnavailable,
                    fmt::format("local rank {} needs its own device, but only {} are visible", env.local_rank, count));
  }
  choose_pinned_memory();
  at::globalContext().lazyInitDevice(at::kCUDA);
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(count == 1 ? 0 : env.local_rank));
  c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(device);
  return device;
}

}  // namespace

at::Device open_device(const std::string& requested_device, const rendezvous::LaunchEnv& env,
                       const std::function<void(const char*)>& ended) {
  if (requested_device == "cpu" || (requested_device == "auto" && !has_driver())) return at::Device(at::kCPU);
  if (requested_device == "cuda" || requested_device == "auto") return first_cuda_device(env, ended);
  throw UserError(ExitCode::kUsage, fmt::format("--device must be auto, cpu or cuda, not '{}'", requested_device));
}

std::optional<int64_t> gpu_memory_of_this_machine() {
  if (!has_driver()) return std::nullopt;
  try {
    return runtime::read_device_capacity(first_cuda_device({}));
  } catch (const UserError& error) {
    log::debug("no GPU to plan for: {}", error.what());
    return std::nullopt;
  }
}

}  // namespace dslaunch::worker
