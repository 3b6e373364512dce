#include "runtime/checkpoint/checkpoint_deadlines.hpp"

namespace dslaunch::runtime {

std::chrono::milliseconds time_for_checkpoint(const std::vector<SavedTensor>& tensors) {
  constexpr int64_t kBytesOfElement = 16;  // at most: a master and two moments in fp32, and the whole weights
  constexpr int64_t kBytesInMillisecond = 20'000;
  int64_t elements = 0;
  for (const auto& tensor : tensors) elements += tensor.numel();
  return std::chrono::minutes(30) + std::chrono::milliseconds(elements * kBytesOfElement / kBytesInMillisecond);
}

}  // namespace dslaunch::runtime
