// "memory_breakdown": memory of the device's allocator and of the host at the phases of a step, in DeepSpeed's lines
// and one on fragmentation. Reading it does not wait for the device. Every reading resets the allocator's peaks, so a
// peak is that of one phase. One thread.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "runtime/telemetry/host_memory.hpp"
#include "runtime/telemetry/step_phases.hpp"

namespace dslaunch::runtime {

struct DeviceMemory {  // bytes
  int64_t allocated = 0, peak_allocated = 0, reserved = 0, peak_reserved = 0;
};
DeviceMemory read_device_memory(at::Device device);  // zeros for the host
// All memory of a GPU, used or not, in bytes; empty for the host, and where the driver does not tell.
std::optional<int64_t> read_device_capacity(at::Device device);

// Three lines: the point, "MA … GB  Max_MA … GB  CA … GB  Max_CA … GB", "CPU Virtual Memory:  used = … GB, percent =
// …%"; for a device a fourth: "fragmentation … GiB (…%) at the peak of this phase".
std::vector<std::string> format_memory(const std::string& point, const DeviceMemory& device, const SystemMemory& host);

class MemoryBreakdown final : public StepObserver {
 public:
  explicit MemoryBreakdown(at::Device device) : device_(device) {}

  void begin_step(int64_t step) override;
  void end_phase(StepPhase phase) override;
  void end_step() override;

  // The lines of the oldest step that has not been taken yet.
  std::vector<std::string> take();
  // The most of the run so far; needed because the allocator's own peaks are reset here.
  int64_t peak_allocated() const { return peak_allocated_; }
  int64_t peak_reserved() const { return peak_reserved_; }

 private:
  void read(const char* point);

  const at::Device device_;
  int64_t peak_allocated_ = 0, peak_reserved_ = 0;
  std::deque<std::vector<std::string>> steps_;
};

}  // namespace dslaunch::runtime
