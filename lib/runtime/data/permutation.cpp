#include "runtime/data/permutation.hpp"

#include <algorithm>
#include <bit>

#include "base/hash.hpp"

namespace dslaunch::runtime {

Permutation::Permutation(int64_t size, uint64_t seed, int64_t epoch) : size_(static_cast<uint64_t>(size)) {
  // At least 2 bits per half: with fewer bits the network reaches too few orders of a tiny set.
  half_bits_ = std::max(2, (static_cast<int>(std::bit_width(size_ - 1)) + 1) / 2);
  half_mask_ = (uint64_t{1} << half_bits_) - 1;
  uint64_t key = mix64(mix64(seed) ^ static_cast<uint64_t>(epoch));
  for (uint64_t& round_key : keys_) round_key = key = mix64(key);
}

int64_t Permutation::operator()(int64_t position) const {
  auto value = static_cast<uint64_t>(position);
  do {
    uint64_t left = value >> half_bits_, right = value & half_mask_;
    for (uint64_t key : keys_) {
      const uint64_t next = left ^ (mix64(key ^ right) & half_mask_);
      left = right;
      right = next;
    }
    value = left << half_bits_ | right;
  } while (value >= size_);
  return static_cast<int64_t>(value);
}

}  // namespace dslaunch::runtime
