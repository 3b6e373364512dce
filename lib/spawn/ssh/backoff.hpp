// Pauses between attempts: doubling up to a second, jittered so that many links do not retry in step.
#pragma once
#include <algorithm>
#include <chrono>
#include <optional>
#include <random>

#include "base/bytes.hpp"
#include "base/deadline.hpp"

namespace dslaunch::spawn {

class Backoff {
 public:
  explicit Backoff(Deadline deadline) : deadline_(deadline) {}

  // nullopt when the deadline does not leave time for another attempt.
  std::optional<std::chrono::milliseconds> next() {
    std::uniform_real_distribution<double> jitter(0.5, 1.5);
    auto pause = std::chrono::milliseconds(static_cast<int64_t>(base_ms_ * jitter(random_)));
    base_ms_ = std::min(base_ms_ * 2, 1000.0);
    if (deadline_.left() <= pause) return std::nullopt;
    return pause;
  }

 private:
  Deadline deadline_;
  double base_ms_ = 40;
  std::minstd_rand random_{random_seed()};
};

}  // namespace dslaunch::spawn
