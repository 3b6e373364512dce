#include "runtime/state/pinned_memory.hpp"

#include <ATen/ops/full.h>

#include <catch2/catch.hpp>

using namespace dslaunch::runtime;

// A host without a device refuses to pin anything.
TEST_CASE("ordinary memory takes the place of pinned memory that is refused", "[runtime][state][pinned_memory]") {
  for (int i = 0; i < 2; ++i) {
    at::Tensor memory = pinned_if_possible({3, 5}, at::kHalf);
    CHECK(memory.sizes() == at::IntArrayRef{3, 5});
    CHECK(memory.is_cpu());
    memory.copy_(at::full({3, 5}, 2.0), /*non_blocking=*/true);
    CHECK(memory.equal(at::full({3, 5}, 2.0, at::kHalf)));
  }
  CHECK(pinned_if_possible({0}, at::kByte).numel() == 0);
  CHECK(pinned_if_possible({2, 3}, {1, 2}, at::kFloat).strides() == at::IntArrayRef{1, 2});
}
