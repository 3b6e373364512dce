// Timeouts for the ranks of a save or a resume that wait for each other.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "base/deadline.hpp"
#include "runtime/checkpoint/checkpoint_metadata.hpp"

namespace dslaunch::runtime {

// For the slowest rank to write or read its part of these tensors and their optimizer state: half an hour for temporary
// storage delays, plus the time for all bytes at a speed that only broken storage falls below. The same on all ranks.
inline std::chrono::milliseconds time_for_checkpoint(const std::vector<SavedTensor>& tensors) {
  constexpr int64_t kBytesOfElement = 16;  // at most: a master and two moments in fp32, and the whole weights
  constexpr int64_t kBytesInMillisecond = 20'000;
  int64_t elements = 0;
  for (const auto& tensor : tensors) elements += tensor.numel();
  return std::chrono::minutes(30) + std::chrono::milliseconds(elements * kBytesOfElement / kBytesInMillisecond);
}

// For a message to the store, or another short step at the end of long work: `deadline`, but at least longer than an
// unreachable host may stay in the job. Otherwise a rank that has waited for a late rank until the deadline could not
// report the late rank's name.
inline Deadline with_minimum_time(Deadline deadline) {
  return Deadline::after(std::max<std::chrono::milliseconds>(deadline.left(), std::chrono::seconds(30)));
}

// For the verdict on work that had to end by `deadline`: the verdict may be sent at the very end of that time.
inline Deadline verdict_deadline(Deadline deadline) {
  return Deadline::after(deadline.left() + std::chrono::minutes(1));
}

}  // namespace dslaunch::runtime
