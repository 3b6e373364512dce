// The random numbers that DeepSpeed's samplers draw from: NumPy's default_rng(seed) and Python's random.Random(seed),
// bit by bit, so that a seed chooses the same samples here as there. One thread.
#pragma once
#include <cstdint>
#include <random>
#include <span>
#include <utility>

namespace dslaunch::runtime {

// PCG64 (XSL RR 128/64) with NumPy's SeedSequence.
class NumpyRandom {
 public:
  explicit NumpyRandom(uint64_t seed);

  double next_double();             // in [0, 1), as Generator.random()
  uint64_t next_up_to(uint64_t n);  // in [0, n], as Generator.shuffle() draws them
  // As Generator.shuffle() of an array or a list.
  template <class T>
  void shuffle(std::span<T> items) {
    for (size_t i = items.size(); i-- > 1;) std::swap(items[i], items[next_up_to(i)]);
  }

 private:
  uint64_t next_64();
  uint32_t next_32();

  __extension__ using Wide = unsigned __int128;
  Wide state_ = 0, increment_ = 0;
  bool has_half_ = false;  // the upper half of a number of 64 bits is left
  uint32_t half_ = 0;
};

// As random.Random(seed).shuffle().
class PythonRandom {
 public:
  explicit PythonRandom(uint64_t seed);

  uint64_t next_below(uint64_t n);  // n from 1 to 2^32, as randbelow()
  template <class T>
  void shuffle(std::span<T> items) {
    for (size_t i = items.size(); i-- > 1;) std::swap(items[i], items[next_below(i + 1)]);
  }

 private:
  std::mt19937 twister_;
};

}  // namespace dslaunch::runtime
