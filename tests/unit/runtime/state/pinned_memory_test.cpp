#include "runtime/state/pinned_memory.hpp"

#include <ATen/ops/full.h>
#include <ATen/record_function.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string_view>

using namespace dslaunch::runtime;

namespace {

int num_asked = 0;

std::unique_ptr<at::ObserverContext> count_allocations(const at::RecordFunction& function) {
  num_asked += std::string_view(function.name()) == "aten::empty";
  return nullptr;
}

}  // namespace

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

TEST_CASE("memory for copies to a device is to be had where none can be pinned", "[runtime][state][pinned_memory]") {
  for (const auto device : {at::kCPU, at::kCUDA}) {
    const at::Tensor memory = host_memory_for(device, {2, 3}, at::kByte);
    CHECK(memory.is_cpu());
    CHECK(memory.numel() == 6);
  }
}

TEST_CASE("pinned memory that was refused is not asked for again", "[runtime][state][pinned_memory]") {
  pinned_if_possible({1}, at::kByte);
  const auto counting = at::addThreadLocalCallback(at::RecordFunctionCallback(count_allocations));
  num_asked = 0;
  for (const int64_t count : {1, 7, 1}) pinned_if_possible({count}, at::kLong);
  at::removeCallback(counting);
  CHECK(num_asked == 3);
}
