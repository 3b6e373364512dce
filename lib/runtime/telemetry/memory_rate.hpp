// How fast memory is read and written, as copies of large tensors measure it. Any thread; waits for the device.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <algorithm>
#include <limits>

#include "runtime/telemetry/time_mark.hpp"

namespace dslaunch::runtime {

// The least time of some rounds of `work` on the device's current stream, in seconds.
template <class Work>
double least_seconds(at::Device device, Work&& work) {
  constexpr int kRounds = 4;
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    const TimeMark begin = mark_time(device);
    work();
    least = std::min(least, milliseconds_between(begin, mark_time(device)) / 1000);
  }
  return least;
}

// Bytes per second of a copy between two tensors of as many bytes; what lies on the host may be pinned.
double copy_rate(at::Device device, const at::Tensor& from, const at::Tensor& to);

// Bytes per second that a copy within the device's memory (the host's for a CPU) reads and writes together. Takes
// 256 MiB of it.
double measure_memory_rate(at::Device device);

}  // namespace dslaunch::runtime
