#include "runtime/memory_plan/rank_memory.hpp"

#include <algorithm>
#include <numeric>

namespace dslaunch::runtime::memory_plan {

int64_t RankMemory::total(Tier tier) const {
  const auto& uses = bytes_[static_cast<size_t>(tier)];
  return std::accumulate(uses.begin(), uses.end(), int64_t{0});
}

Peak peak_of(const RankMemory& memory, const Capacity& capacity, int64_t activation_bytes, bool accumulates) {
  const int64_t gradients = memory.of(Tier::kDevice, Use::kGradients);
  const int64_t rest = memory.total(Tier::kDevice) - gradients;
  const int64_t device = rest + (accumulates ? gradients + activation_bytes : std::max(gradients, activation_bytes));
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
