#include "runtime/engine/plan/measure_rates.hpp"

#include <ATen/ATen.h>

#include <cmath>

#include "runtime/state/pinned_memory.hpp"
#include "runtime/telemetry/memory_rate.hpp"

namespace dslaunch::runtime::engine::plan {
namespace {

constexpr int64_t kCopyBytes = int64_t{1} << 27;
constexpr int64_t kWidthOnDevice = 8192, kWidthOnHost = 1024;
constexpr int kGemmsOnDevice = 64;  // some 100 ms

double flops_of_gemm(int64_t width) {
  return 2.0 * std::pow(static_cast<double>(width), 3);
}

}  // namespace

Rates measure_rates(at::Device device, at::ScalarType compute_dtype) {
  Rates out;
  const int64_t width = device.is_cpu() ? kWidthOnHost : kWidthOnDevice;
  const at::Tensor a = at::ones({width, width}, at::TensorOptions(device).dtype(compute_dtype)), b = at::ones_like(a);
  at::Tensor product = at::empty_like(a);
  out.flops = flops_of_gemm(width) / least_seconds(device, [&] { at::mm_out(product, a, b); });
  out.host_bytes = measure_memory_rate(at::kCPU);
  out.device_bytes = out.link_bytes = out.host_bytes;
  if (device.is_cpu()) return out;
  out.device_bytes = measure_memory_rate(device);
  const at::Tensor on_device = at::empty({kCopyBytes}, at::TensorOptions(device).dtype(at::kByte));
  const at::Tensor pinned = pinned_if_possible({kCopyBytes}, at::kByte);
  out.link_bytes = copy_rate(device, pinned, on_device);
  return out;
}

// Random values: a product of ones draws less power, and is faster than any of a model.
double measure_gemm_rate(at::Device device, at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  const int64_t width = device.is_cpu() ? kWidthOnHost : kWidthOnDevice;
  const auto options = at::TensorOptions(device);
  const at::Tensor a = at::randn({width, width}, options).to(dtype), b = at::randn({width, width}, options).to(dtype);
  at::Tensor product = at::empty_like(a);
  at::mm_out(product, a, b);  // chooses an algorithm
  const int times = device.is_cpu() ? 1 : kGemmsOnDevice;
  const double seconds = least_seconds(device, [&] {
    for (int i = 0; i < times; ++i) at::mm_out(product, a, b);
  });
  return times * flops_of_gemm(width) / seconds;
}

}  // namespace dslaunch::runtime::engine::plan
