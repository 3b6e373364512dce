#include "runtime/memory_plan/rank_memory.hpp"

#include <algorithm>
#include <numeric>

namespace dslaunch::runtime::memory_plan {

int64_t RankMemory::total(Tier tier) const {
  const auto& uses = bytes_[static_cast<size_t>(tier)];
  return std::accumulate(uses.begin(), uses.end(), int64_t{0});
}

std::vector<StepPoint> points_of(int64_t activation_bytes) {
  return {{activation_bytes, 0}};
}

int64_t most_activations(std::span<const StepPoint> points) {
  int64_t most = 0;
  for (const StepPoint& point : points) most = std::max(most, point.activation_bytes);
  return most;
}

Peak peak_of(const RankMemory& memory, const Capacity& capacity, std::span<const StepPoint> points, bool accumulates) {
  const auto on_device = [&](Use use) { return memory.of(Tier::kDevice, use); };
  const int64_t gradients = on_device(Use::kGradients), buckets = on_device(Use::kBackwardBuckets);
  const int64_t copies = on_device(Use::kUpdateCopies);
  const int64_t rest = memory.total(Tier::kDevice) - gradients - buckets - copies;
  int64_t most = gradients + std::max(buckets, copies);
  for (const StepPoint& point : points) {
    const double share = accumulates ? 1 : point.gradient_share;
    const auto of_gradients = static_cast<int64_t>(share * static_cast<double>(gradients));
    most = std::max(most, point.activation_bytes + of_gradients + (share > 0 ? buckets : 0));
  }
  const int64_t device = rest + most;
  const int64_t host = memory.total(Tier::kPageLocked) + memory.total(Tier::kHost);
  if (capacity.has_gpus) return {device, host * capacity.ranks_of_host};
  return {0, (device + host) * capacity.ranks_of_host};
}

Fit fit_of(const Peak& peak, const Capacity& capacity) {
  const bool needs_gpu = capacity.has_gpus;
  if (needs_gpu && capacity.gpu_bytes && peak.gpu_bytes > *capacity.gpu_bytes) return Fit::kNo;
  if (capacity.host_bytes && peak.host_bytes > *capacity.host_bytes) return Fit::kNo;
  const bool is_known = (!needs_gpu || capacity.gpu_bytes) && (peak.host_bytes == 0 || capacity.host_bytes);
  return is_known ? Fit::kYes : Fit::kUnknown;
}

}  // namespace dslaunch::runtime::memory_plan
