// The memory of one rank in bytes, by where it is and what it is for. Plain values; any thread.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace dslaunch::runtime::memory_plan {

// kDevice: the memory of the rank's GPU; on CPU ranks host memory as well. kPageLocked: host memory that the copy
// engine of a GPU reads and writes.
enum class Tier : uint8_t { kDevice, kPageLocked, kHost, kFile };
inline constexpr size_t kNumTiers = 4;

enum class Use : uint8_t {
  kParameters,  // in their compute type, frozen ones and the model's buffers included
  kGradients,   // from backward to the update
  kMasters,     // where the parameter is not its own
  kMoments,
  kSlots,            // stage 3: gathered units; copies of hpZ
  kBuckets,          // what reductions and copies between tiers go through
  kBackwardBuckets,  // the same, but from the first gradient of a step to its update only
  kUpdateCopies,     // of parameters, while the device updates them for the host
};
inline constexpr size_t kNumUses = 8;

class RankMemory {
 public:
  void add(Tier tier, Use use, int64_t bytes) { bytes_[index(tier)][index(use)] += bytes; }
  int64_t of(Tier tier, Use use) const { return bytes_[index(tier)][index(use)]; }
  int64_t total(Tier tier) const;
  bool operator==(const RankMemory&) const = default;

 private:
  template <class Enum>
  static size_t index(Enum value) {
    return static_cast<size_t>(value);
  }

  std::array<std::array<int64_t, kNumUses>, kNumTiers> bytes_{};
};

// What a host and each of its GPUs have; empty: not known.
struct Capacity {
  std::optional<int64_t> gpu_bytes;
  std::optional<int64_t> host_bytes;
  int ranks_of_host = 1;
  bool has_gpus = true;  // false: CPU ranks, whose device is the host
};

// What a step needs at its peak.
struct Peak {
  int64_t gpu_bytes = 0;   // of each GPU; 0 on CPU ranks
  int64_t host_bytes = 0;  // of all ranks of a host
};

// A time between the beginning of a forward and the end of its backward.
struct StepPoint {
  int64_t activation_bytes = 0;  // of all micro batches that a rank keeps at a time, gradients of activations included
  double gradient_share = 0;     // of the gradients' bytes, those that exist by then
  bool operator==(const StepPoint&) const = default;
};
// Where only the most is known: gradients take memory as backward frees activations.
std::vector<StepPoint> points_of(int64_t activation_bytes);
int64_t most_activations(std::span<const StepPoint> points);

// `points`: of a step of one micro batch. All gradients are there at each of them where they stay from one accumulation
// step to the next (`accumulates`). The update follows, with all gradients and without activations.
Peak peak_of(const RankMemory& memory, const Capacity& capacity, std::span<const StepPoint> points, bool accumulates);

enum class Fit : uint8_t { kYes, kNo, kUnknown };
// kUnknown: nothing that is known is exceeded, and something is not known.
Fit fit_of(const Peak& peak, const Capacity& capacity);

}  // namespace dslaunch::runtime::memory_plan
