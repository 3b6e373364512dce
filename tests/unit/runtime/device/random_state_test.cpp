#include "runtime/device/random_state.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

using namespace dslaunch::runtime::device;

TEST_CASE("ranks draw different numbers, the same ones in every run", "[runtime][random_state]") {
  auto draw = [](int rank) {
    seed_random_state(7, rank, at::kCPU);
    return at::rand({100});
  };
  CHECK(at::equal(draw(0), draw(0)));
  CHECK_FALSE(at::equal(draw(0), draw(1)));
}

TEST_CASE("a restored state continues with the numbers that were to come", "[runtime][random_state]") {
  seed_random_state(1, 0, at::kCPU);
  (void)at::rand({3});
  const auto state = save_random_state(at::kCPU);
  const auto expected = at::rand({10});
  (void)at::rand({5});
  restore_random_state(state, at::kCPU);
  CHECK(at::equal(at::rand({10}), expected));
}
