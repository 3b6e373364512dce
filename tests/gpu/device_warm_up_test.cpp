// The GEMM that sets up cuBLAS beside a start. Without a device it is skipped.
#include "runtime/engine/setup/device_warm_up.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "runtime/telemetry/memory_breakdown.hpp"
#include "support/cuda_device.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using engine::setup::DeviceWarmUp;

TEST_CASE("after a warm-up the main thread's first GEMM needs no workspace of its own", "[gpu][device_warm_up]") {
  if (!test::has_device()) return;
  const at::Device device(at::kCUDA, 0);
  DeviceWarmUp warm_up(device, at::kBFloat16);
  REQUIRE(warm_up.wait());
  CHECK(*warm_up.wait() > 0);
  const at::Tensor a = at::ones({64, 64}, at::TensorOptions().device(device).dtype(at::kBFloat16));
  at::Tensor gemm = at::empty_like(a);
  const int64_t before = read_device_memory(device).allocated;
  at::mm_out(gemm, a, a);
  CHECK(gemm.sum().item<float>() == 64 * 64 * 64);
  gemm.reset();
  CHECK(read_device_memory(device).allocated <= before);
}
