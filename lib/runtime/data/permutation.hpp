// A shuffled order without a table in memory: position -> sample, a bijection of [0, size) that depends on seed and
// epoch only. docs/data.md has the algorithm as a few lines of Python. Pure; any thread.
#pragma once
#include <cstdint>

namespace dslaunch::runtime {

// A Feistel network over the next power of four that covers `size`, iterated until the value lies inside [0, size).
class Permutation {
 public:
  Permutation(int64_t size, uint64_t seed, int64_t epoch);
  // `position` in [0, size).
  int64_t operator()(int64_t position) const;

 private:
  static constexpr int kRounds = 8;

  uint64_t size_;
  int half_bits_;
  uint64_t half_mask_;
  uint64_t keys_[kRounds];
};

}  // namespace dslaunch::runtime
