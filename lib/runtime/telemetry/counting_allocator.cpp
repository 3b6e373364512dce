#include "runtime/telemetry/counting_allocator.hpp"

#include <c10/core/CPUAllocator.h>

#include <algorithm>

namespace dslaunch::runtime {

CountingAllocator::CountingAllocator() : plain_(*c10::GetDefaultCPUAllocator()) {}

CountingAllocator& CountingAllocator::install() {
  static CountingAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/1);
  return allocator;
}

c10::DataPtr CountingAllocator::allocate(size_t bytes) {
  void* data = plain_.raw_allocate(bytes);
  if (data != nullptr) {
    const std::lock_guard lock(mutex_);
    sizes_[data] = bytes;
    allocated_.now += static_cast<int64_t>(bytes);
    allocated_.peak = std::max(allocated_.peak, allocated_.now);
  }
  return {data, data, &release, at::kCPU};
}

Allocated CountingAllocator::read() const {
  const std::lock_guard lock(mutex_);
  return allocated_;
}

void CountingAllocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  allocated_.peak = allocated_.now;
}

void CountingAllocator::release(void* data) {
  if (data == nullptr) return;
  auto& self = static_cast<CountingAllocator&>(*c10::GetCPUAllocator());
  {
    const std::lock_guard lock(self.mutex_);
    const auto known = self.sizes_.find(data);
    self.allocated_.now -= static_cast<int64_t>(known->second);
    self.sizes_.erase(known);
  }
  self.plain_.raw_deallocate(data);
}

}  // namespace dslaunch::runtime
