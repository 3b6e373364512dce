// Random choices that follow from a seed alone (SplitMix64): the same on every machine and with every library. Pure.
#pragma once
#include <chrono>
#include <cstdint>

namespace dslaunch::simulation {

using Duration = std::chrono::nanoseconds;

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  // Both ends included.
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1));
  }
  Duration between(Duration low, Duration high) { return Duration(between(low.count(), high.count())); }
  bool one_in(int64_t count) { return between(1, count) == 1; }
  // Short times are as frequent as long ones: a fault then meets the first moments of a job as often as the rest.
  Duration up_to(Duration most) {
    Duration limit = most;
    for (int64_t halvings = between(0, 12); halvings > 0; --halvings) limit /= 2;
    return between(Duration(0), limit);
  }

 private:
  uint64_t state_;
};

}  // namespace dslaunch::simulation
