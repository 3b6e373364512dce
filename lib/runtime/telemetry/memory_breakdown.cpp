#include "runtime/telemetry/memory_breakdown.hpp"

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/telemetry/fragmentation.hpp"
#include "runtime/telemetry/python_text.hpp"

namespace dslaunch::runtime {

DeviceMemory read_device_memory(at::Device device) {
  if (device.is_cpu()) return {};
  const auto stats = at::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return {stats.allocated_bytes[kAll].current, stats.allocated_bytes[kAll].peak, stats.reserved_bytes[kAll].current,
          stats.reserved_bytes[kAll].peak};
}

std::optional<int64_t> read_device_capacity(at::Device device) {
  if (device.is_cpu()) return std::nullopt;
  try {
    return static_cast<int64_t>(at::getDeviceAllocator(device.type())->getMemoryInfo(device.index()).second);
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

std::vector<std::string> format_memory(const std::string& point, const DeviceMemory& device, const SystemMemory& host) {
  const int64_t used = host.total - host.available;
  const double percent = host.total > 0 ? 100.0 * static_cast<double>(used) / static_cast<double>(host.total) : 0;
  std::vector<std::string> lines{
      point,
      fmt::format("MA {} GB         Max_MA {} GB         CA {} GB         Max_CA {:.0f} GB ",
                  python_gigabytes(device.allocated), python_gigabytes(device.peak_allocated),
                  python_gigabytes(device.reserved), static_cast<double>(device.peak_reserved) / (1 << 30)),
      fmt::format("CPU Virtual Memory:  used = {} GB, percent = {:.1f}%", python_gigabytes(used), percent)};
  if (device.peak_reserved > 0) {
    lines.push_back(fmt::format("fragmentation {} at the peak of this phase",
                                describe(fragmentation_of(device.peak_allocated, device.peak_reserved))));
  }
  return lines;
}

void MemoryBreakdown::begin_step(int64_t) {
  steps_.emplace_back();
  read("Engine before forward");
}

void MemoryBreakdown::end_phase(StepPhase phase) {
  if (phase == StepPhase::kForward) read("Engine after forward");
  if (phase == StepPhase::kBackward) read("Engine after backward");
}

void MemoryBreakdown::end_step() {
  read("Engine after step");
}

void MemoryBreakdown::read(const char* point) {
  const DeviceMemory memory = read_device_memory(device_);
  peak_allocated_ = std::max(peak_allocated_, memory.peak_allocated);
  peak_reserved_ = std::max(peak_reserved_, memory.peak_reserved);
  if (!device_.is_cpu()) at::getDeviceAllocator(device_.type())->resetPeakStats(device_.index());
  for (auto& line : format_memory(point, memory, read_system_memory())) steps_.back().push_back(std::move(line));
}

std::vector<std::string> MemoryBreakdown::take() {
  DSL_CHECK(!steps_.empty(), "a step is measured before it is taken");
  auto lines = std::move(steps_.front());
  steps_.pop_front();
  return lines;
}

}  // namespace dslaunch::runtime
