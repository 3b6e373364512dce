// What the models of a process share on their accelerator. A main makes one for its rank and hands it down; models keep
// what they use of it, so that two models of a process share it, or have one each. Any thread.
#pragma once
#include <c10/core/Device.h>

#include <memory>

#include "runtime/device/gemm.hpp"
#include "runtime/generated_kernels/kernel_library.hpp"

namespace dslaunch::runtime::device {

class Device {
 public:
  explicit Device(at::Device at);

  at::Device at() const { return at_; }
  // Compiled kernels, those of the user's cache as well.
  const std::shared_ptr<generated_kernels::KernelLibrary>& kernels() const { return kernels_; }
  // Measured algorithms of GEMMs, those of the user's cache as well.
  const GemmCachePtr& gemms() const { return gemms_; }

 private:
  const at::Device at_;
  const std::shared_ptr<generated_kernels::KernelLibrary> kernels_;
  const GemmCachePtr gemms_;
};

}  // namespace dslaunch::runtime::device
