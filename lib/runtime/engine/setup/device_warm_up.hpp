// Computes a small matrix product on a GPU, on a thread of its own, while the model is read and parameters are copied:
// the first product of a process waits until cuBLAS has set itself up and loaded code. The main thread's products then
// use the same handle and workspace. Nothing happens on the host.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <thread>

namespace dslaunch::runtime::engine::setup {

class DeviceWarmUp {
 public:
  DeviceWarmUp(at::Device device, at::ScalarType dtype);

  // Waits for the product; returns the seconds that it took. Empty on the host, and where it failed: the run's own
  // first product reports why.
  std::optional<double> wait();

 private:
  std::optional<double> seconds_;  // written by the thread until it is joined
  std::jthread thread_;
};

}  // namespace dslaunch::runtime::engine::setup
