// The kernels and copies of some steps of a generation on a GPU, as CUPTI records them. One thread.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/telemetry/device_work.hpp"
#include "runtime/telemetry/kernel_recorder.hpp"

namespace dslaunch::runtime::engine::inference {

class StepKernels {
 public:
  explicit StepKernels(at::Device device) : device_(device) {}
  // A pass over one token of every text has ended, of `bytes` that it reads at least.
  void note_step(int64_t bytes);
  // kernel_table() of what was recorded; a line that says why there is none.
  std::string text() const;

 private:
  void synchronize() const;

  const at::Device device_;
  KernelRecorder recorder_;
  int64_t num_seen_ = 0, num_recorded_ = 0, bytes_ = 0;
  std::vector<DeviceSpan> spans_;
};

// What steps that read so many bytes each have run: by name, calls and microseconds of a step, and some kernels in
// their order, with the gaps before them. Pure.
std::string kernel_table(const std::vector<DeviceSpan>& spans, int64_t num_steps, int64_t bytes);

}  // namespace dslaunch::runtime::engine::inference
