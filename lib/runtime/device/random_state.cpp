#include "runtime/device/random_state.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <cstring>

#include "base/error.hpp"
#include "runtime/device/device_module.hpp"

namespace dslaunch::runtime::device {
namespace {

at::Tensor captured_state_of(at::Device device) {
  const uint64_t offset = module().captured_offset(device);
  at::Tensor state = at::empty({sizeof offset}, at::kByte);
  std::memcpy(state.data_ptr(), &offset, sizeof offset);
  return state;
}

void set_captured_state_of(at::Device device, const at::Tensor& state) {
  uint64_t offset = 0;
  DSL_CHECK(state.numel() == sizeof offset, "random numbers of a capture continue within it");
  std::memcpy(&offset, state.const_data_ptr(), sizeof offset);
  module().set_captured_offset(device, offset);
}

at::Tensor state_of(at::Device device) {
  if (is_capturing(device)) return captured_state_of(device);
  auto generator = at::globalContext().defaultGenerator(device);
  std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_state_of(at::Device device, const at::Tensor& state) {
  if (is_capturing(device)) return set_captured_state_of(device, state);
  auto generator = at::globalContext().defaultGenerator(device);
  std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

uint64_t offset_of(at::Device device) {
  if (is_capturing(device)) return module().captured_offset(device);
  auto generator = at::globalContext().defaultGenerator(device);
  std::lock_guard lock(generator.mutex());
  return generator.unsafeGetGeneratorImpl()->get_offset();
}

void set_offset_of(at::Device device, uint64_t offset) {
  if (is_capturing(device)) return module().set_captured_offset(device, offset);
  auto generator = at::globalContext().defaultGenerator(device);
  std::lock_guard lock(generator.mutex());
  generator.set_offset(offset);
}

// For each rank of a group; a multiple of 4, as the offsets of CUDA's random numbers have to be.
constexpr uint64_t kOffsetsPerRank = 1 << 17;
constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15;  // spreads small numbers over 64 bits (as splitmix64 does)

}  // namespace

void seed_random_state(uint64_t seed, int rank, at::Device device) {
  const uint64_t own = seed + static_cast<uint64_t>(rank);
  for (auto one : {at::Device(at::kCPU), device}) {
    auto generator = at::globalContext().defaultGenerator(one);
    std::lock_guard lock(generator.mutex());
    generator.set_current_seed(own);
  }
}

at::Tensor save_random_state(at::Device device) {
  at::Tensor host = state_of(at::kCPU);
  return device.is_cpu() ? host.clone() : at::cat({host, state_of(device)});
}

void restore_random_state(const at::Tensor& state, at::Device device) {
  const int64_t host_size = state_of(at::kCPU).numel();
  set_state_of(at::kCPU, state.narrow(0, 0, host_size).clone());
  const int64_t rest = state.numel() - host_size;
  if (!device.is_cpu() && rest > 0) set_state_of(device, state.narrow(0, host_size, rest).clone());
}

RankRandomScope::RankRandomScope(at::Device device, int rank, int num_ranks) : device_(device) {
  if (!device.is_cpu()) {
    const uint64_t offset = offset_of(device);
    offset_after_ = offset + static_cast<uint64_t>(num_ranks) * kOffsetsPerRank;
    set_offset_of(device, offset + static_cast<uint64_t>(rank) * kOffsetsPerRank);
    return;
  }
  auto generator = at::globalContext().defaultGenerator(device);
  std::lock_guard lock(generator.mutex());
  const uint64_t drawn = at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
  after_ = generator.get_state();
  generator.set_current_seed(drawn ^ (static_cast<uint64_t>(rank + 1) * kGoldenRatio));
}

RankRandomScope::~RankRandomScope() {
  if (!device_.is_cpu()) {
    set_offset_of(device_, offset_after_);
    return;
  }
  auto generator = at::globalContext().defaultGenerator(device_);
  std::lock_guard lock(generator.mutex());
  generator.set_state(after_);
}

}  // namespace dslaunch::runtime::device
