#include "device.hpp"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sys/stat.h>

#include "base/error.hpp"
#include "base/format.hpp"
#include "comm/module.hpp"

namespace dslaunch::worker {
namespace {

bool driver_is_there() {
  struct stat status {};
  return ::stat("/dev/nvidiactl", &status) == 0;
}

at::Device first_cuda_device(const rendezvous::LaunchEnv& env) {
  comm::Module::cuda();  // brings libtorch_cuda with it
  const int count = at::globalContext().hasCUDA() ? at::detail::getCUDAHooks().deviceCount() : 0;
  if (count == 0) {
    throw UserError(
        ExitCode::kUnavailable,
        "no CUDA device is visible (is the driver loaded, is CUDA_VISIBLE_DEVICES empty?). --device cpu runs without");
  }
  if (count != 1 && env.local_rank >= count) {
    throw UserError(ExitCode::kUnavailable,
                    fmt::format("local rank {} needs a device of its own, but {} are visible", env.local_rank, count));
  }
  at::globalContext().lazyInitDevice(at::kCUDA);
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(count == 1 ? 0 : env.local_rank));
  c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(device);
  return device;
}

}  // namespace

at::Device open_device(const std::string& wish, const rendezvous::LaunchEnv& env) {
  if (wish == "cpu" || (wish == "auto" && !driver_is_there())) return at::Device(at::kCPU);
  if (wish == "cuda" || wish == "auto") return first_cuda_device(env);
  throw UserError(ExitCode::kUsage, fmt::format("--device takes auto, cpu or cuda, but got '{}'", wish));
}

}  // namespace dslaunch::worker
