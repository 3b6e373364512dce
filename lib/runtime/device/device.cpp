#include "runtime/device/device.hpp"

#include "runtime/generated_kernels/kernel_files.hpp"

namespace dslaunch::runtime::device {

Device::Device(at::Device at)
    : at_(at),
      kernels_(std::make_shared<generated_kernels::KernelLibrary>(generated_kernels::kernel_directory())),
      gemms_(c10::make_intrusive<GemmCache>(generated_kernels::kernel_directory())) {}

}  // namespace dslaunch::runtime::device
