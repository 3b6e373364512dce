#include "runtime/offload/host_memory.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime::offload;

TEST_CASE("mapped memory is zero, aligned, and usable to the last element", "[runtime][offload]") {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kByte}) {
    const at::Tensor memory = map_host_memory(100'003, dtype);
    CHECK(memory.scalar_type() == dtype);
    CHECK(memory.numel() == 100'003);
    CHECK(reinterpret_cast<uintptr_t>(memory.data_ptr()) % 4096 == 0);
    CHECK(memory.count_nonzero().item<int64_t>() == 0);
    memory.fill_(1);
    CHECK(memory.sum().item<double>() >= 1);
  }
  CHECK(map_host_memory(0, at::kFloat).numel() == 0);
}

TEST_CASE("memory stays until its last view is gone", "[runtime][offload]") {
  at::Tensor view;
  {
    const at::Tensor memory = map_page_locked_memory(5000, at::kFloat, at::kCPU);
    memory.fill_(3);
    view = memory.narrow(0, 4990, 10);
  }
  CHECK(view.sum().item<float>() == 30);
}

TEST_CASE("more memory than there is is refused, with the numbers", "[runtime][offload]") {
  constexpr int64_t kGiB = int64_t{1} << 30;
  CHECK_NOTHROW(require_host_memory({.bytes_of_rank = 2 * kGiB, .ranks_of_host = 4}, 8 * kGiB));
  test::expect_error(ExitCode::kUnavailable, {"12.00 GiB", "3.00 GiB for each of 4 ranks", "only 8.00 GiB", "ratio"},
                     [] { require_host_memory({.bytes_of_rank = 3 * kGiB, .ranks_of_host = 4}, 8 * kGiB); });
  // Larger than any address space.
  test::expect_error(ExitCode::kUnavailable, {"cannot map", "GiB of host memory for offloaded state"},
                     [] { map_host_memory(int64_t{1} << 60, at::kByte); });
}

TEST_CASE("a buffer that cannot be page-locked is ordinary memory", "[runtime][offload]") {
  // Of a device that this machine may have or not: without it, or without the CUDA module, no memory can be locked.
  for (int i = 0; i < 2; ++i) {
    const at::Tensor memory = page_locked_if_possible(3000, at::kFloat, at::Device(at::kCUDA, 0));
    CHECK(memory.device().is_cpu());
    CHECK(memory.count_nonzero().item<int64_t>() == 0);
    CHECK(memory.fill_(2).sum().item<float>() == 6000);
  }
}
