#include "runtime/data/reference_random.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

namespace dslaunch::runtime {
namespace {

// NumPy's SeedSequence for one integer: hashes its words into a pool, and the pool into as many words as are asked for.
class SeedSequence {
 public:
  explicit SeedSequence(uint64_t seed) {
    const std::array<uint32_t, 4> words{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), 0, 0};
    uint32_t constant = 0x43b0d7e5;
    const auto hash = [&](uint32_t value) {
      value ^= constant;
      constant *= 0x931e8875;
      value *= constant;
      return value ^ value >> 16;
    };
    for (size_t i = 0; i < pool_.size(); ++i) pool_[i] = hash(words[i]);
    for (size_t from = 0; from < pool_.size(); ++from) {
      for (size_t to = 0; to < pool_.size(); ++to) {
        if (from != to) pool_[to] = mix(pool_[to], hash(pool_[from]));
      }
    }
  }

  // Words of 64 bits, each of two words of the pool's hash.
  std::array<uint64_t, 4> generate() const {
    std::array<uint64_t, 4> out{};
    uint32_t constant = 0x8b51f9dd;
    for (size_t i = 0; i < 2 * out.size(); ++i) {
      uint32_t value = pool_[i % pool_.size()] ^ constant;
      constant *= 0x58f38ded;
      value *= constant;
      value ^= value >> 16;
      out[i / 2] |= static_cast<uint64_t>(value) << (i % 2 == 0 ? 0 : 32);
    }
    return out;
  }

 private:
  static uint32_t mix(uint32_t x, uint32_t y) {
    const uint32_t value = 0xca01f9dd * x - 0x4973f715 * y;
    return value ^ value >> 16;
  }

  std::array<uint32_t, 4> pool_{};
};

// Python's init_by_array() as a seed sequence of std::mt19937, which takes its words as the state.
class ArraySeed {
 public:
  using result_type = uint32_t;
  explicit ArraySeed(uint64_t seed) : key_{static_cast<uint32_t>(seed)} {
    if (seed >> 32 != 0) key_.push_back(static_cast<uint32_t>(seed >> 32));
  }

  template <class Iterator>
  void generate(Iterator begin, Iterator end) const {
    const auto size = static_cast<size_t>(end - begin);
    std::vector<uint32_t> state(size);
    state[0] = 19650218;
    for (size_t i = 1; i < size; ++i) {
      state[i] = 1812433253U * (state[i - 1] ^ state[i - 1] >> 30) + static_cast<uint32_t>(i);
    }
    size_t i = 1;
    const auto advance = [&] {
      if (++i < size) return;
      state[0] = state[size - 1];
      i = 1;
    };
    for (size_t k = 0; k < std::max(size, key_.size()); ++k) {
      const size_t j = k % key_.size();
      state[i] = (state[i] ^ (state[i - 1] ^ state[i - 1] >> 30) * 1664525U) + key_[j] + static_cast<uint32_t>(j);
      advance();
    }
    for (size_t k = 1; k < size; ++k) {
      state[i] = (state[i] ^ (state[i - 1] ^ state[i - 1] >> 30) * 1566083941U) - static_cast<uint32_t>(i);
      advance();
    }
    state[0] = 0x80000000U;
    std::copy(state.begin(), state.end(), begin);
  }

 private:
  std::vector<uint32_t> key_;
};

std::mt19937 twister_of(uint64_t seed) {
  ArraySeed words(seed);
  return std::mt19937(words);
}

}  // namespace

NumpyRandom::NumpyRandom(uint64_t seed) {
  const auto words = SeedSequence(seed).generate();
  increment_ = (static_cast<Wide>(words[2]) << 64 | words[3]) << 1 | 1;
  next_64();
  state_ += static_cast<Wide>(words[0]) << 64 | words[1];
  next_64();
}

uint64_t NumpyRandom::next_64() {
  constexpr Wide kMultiplier = static_cast<Wide>(2549297995355413924ULL) << 64 | 4865540595714422341ULL;
  state_ = state_ * kMultiplier + increment_;
  return std::rotr(static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_),
                   static_cast<int>(state_ >> 122));
}

uint32_t NumpyRandom::next_32() {
  if (has_half_) {
    has_half_ = false;
    return half_;
  }
  const uint64_t both = next_64();
  has_half_ = true;
  half_ = static_cast<uint32_t>(both >> 32);
  return static_cast<uint32_t>(both);
}

double NumpyRandom::next_double() {
  return static_cast<double>(next_64() >> 11) * 0x1p-53;
}

// Draws with as many bits as n has, until one is not above n.
uint64_t NumpyRandom::next_up_to(uint64_t n) {
  if (n == 0) return 0;
  const uint64_t mask = UINT64_MAX >> std::countl_zero(n);
  while (true) {
    const uint64_t value = (n <= UINT32_MAX ? next_32() : next_64()) & mask;
    if (value <= n) return value;
  }
}

PythonRandom::PythonRandom(uint64_t seed) : twister_(twister_of(seed)) {}

uint64_t PythonRandom::next_below(uint64_t n) {
  const int bits = std::bit_width(n);
  while (true) {
    // Above 32 bits Python joins two words; no list is that long here.
    const uint64_t value =
        bits > 32 ? twister_() | static_cast<uint64_t>(twister_() >> (64 - bits)) << 32 : twister_() >> (32 - bits);
    if (value < n) return value;
  }
}

}  // namespace dslaunch::runtime
