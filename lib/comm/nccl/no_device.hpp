// Explains why CUDA has no device for a rank, and how to fix it. Pure.
#pragma once
#include <cuda_runtime_api.h>

#include <string>

#include "base/format.hpp"

namespace dslaunch::comm {

// The result of cudaGetDeviceCount, the versions from cudaDriverGetVersion and cudaRuntimeGetVersion (12040 is CUDA
// 12.4; a driver of 0 means no driver), and CUDA's text for the result.
struct NoDevice {
  cudaError_t result = cudaErrorNoDevice;
  int driver = 0;
  int library = 0;
  std::string text{};
};

// One sentence without its full stop.
inline std::string why_no_device(const NoDevice& found) {
  const auto release = [](int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); };
  switch (found.result) {
    case cudaSuccess:
    case cudaErrorNoDevice:
      return "no CUDA device is visible (is CUDA_VISIBLE_DEVICES empty, or does it name only devices that this host "
             "does not have?)";
    case cudaErrorInsufficientDriver:
      if (found.driver == 0) {
        return "libcuda.so.1, the library of the NVIDIA driver, is not found (is the driver installed? A container "
               "needs the driver capability compute)";
      }
      return fmt::format(
          "the NVIDIA driver is too old: it supports CUDA up to {}, and LibTorch needs CUDA {}. Install a newer driver "
          "(for CUDA 13: 580 or later; nvidia-smi shows the installed version)",
          release(found.driver), release(found.library));
    case cudaErrorSystemNotReady:
      return "the GPUs are not ready: a host with NVSwitch needs its fabric manager (systemctl status "
             "nvidia-fabricmanager)";
    case cudaErrorSystemDriverMismatch:
      return "the kernel module and the library of the NVIDIA driver have different versions: the driver was upgraded "
             "(reboot, or reload the kernel module)";
    case cudaErrorCompatNotSupportedOnDevice:
      return "libcuda.so.1 does not match the kernel's NVIDIA driver (is a directory cuda-compat in LD_LIBRARY_PATH?)";
    default:
      return fmt::format("cannot initialize CUDA: {} ({})", found.text, static_cast<int>(found.result));
  }
}

}  // namespace dslaunch::comm
