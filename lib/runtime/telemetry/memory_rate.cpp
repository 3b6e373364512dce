#include "runtime/telemetry/memory_rate.hpp"

#include <ATen/ATen.h>

namespace dslaunch::runtime {

double copy_rate(at::Device device, const at::Tensor& from, const at::Tensor& to) {
  return static_cast<double>(from.nbytes()) / least_seconds(device, [&] { to.copy_(from, /*non_blocking=*/true); });
}

double measure_memory_rate(at::Device device) {
  constexpr int64_t kBytes = int64_t{1} << 27;  // more than caches hold
  const at::Tensor from = at::zeros({kBytes}, at::TensorOptions(device).dtype(at::kByte));
  return 2 * copy_rate(device, from, at::zeros_like(from));
}

}  // namespace dslaunch::runtime
