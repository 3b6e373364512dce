// Copies through a ring of blocks: what arrives, and in which order. The device is the CPU here; tests/gpu has the GPU.
#include "runtime/offload/staged_copies.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

using dslaunch::runtime::offload::StagedCopies;

namespace {

constexpr int64_t kBlock = 8 << 20;  // bytes

at::Tensor ramp(int64_t numel, at::ScalarType dtype, int64_t first = 0) {
  return at::arange(first, first + numel, at::kLong).remainder(251).to(dtype);
}

}  // namespace

TEST_CASE("staged copies: every element arrives, whatever the size", "[runtime][offload]") {
  StagedCopies copies(at::kCPU, 2, {});
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const int64_t of_block = kBlock / static_cast<int64_t>(c10::elementSize(dtype));
    for (const int64_t numel : {int64_t{0}, int64_t{1}, of_block, of_block + 3, 11 * of_block + 5}) {
      INFO(numel << " elements of " << at::toString(dtype));
      const at::Tensor values = ramp(numel, dtype);
      at::Tensor host = at::zeros({numel + 2}, dtype);
      copies.download(values, host.narrow(0, 1, numel));
      copies.finish();
      CHECK(host.narrow(0, 1, numel).equal(values));
      CHECK(host[0].item<float>() == 0);
      CHECK(host[numel + 1].item<float>() == 0);
      at::Tensor back = at::zeros({numel}, dtype);
      copies.upload(host.narrow(0, 1, numel), back);
      CHECK(back.equal(values));
    }
  }
}

TEST_CASE("staged copies: the last of several to the same memory stays", "[runtime][offload]") {
  StagedCopies copies(at::kCPU, 1, {});
  at::Tensor host = at::zeros({3 * kBlock / 4}, at::kFloat);
  for (int64_t step = 0; step < 5; ++step) copies.download(ramp(host.numel(), at::kFloat, step), host);
  copies.finish();
  CHECK(host.equal(ramp(host.numel(), at::kFloat, 4)));
}
