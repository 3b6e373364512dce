// When a wait for other ranks counts as long, and when it is reported. Pure.
#pragma once
#include <array>
#include <chrono>
#include <cstddef>
#include <vector>

namespace dslaunch::comm {

// The typical duration of a step: the median of the most recent steps. One thread at a time.
class MedianTime {
 public:
  void add(std::chrono::milliseconds time);
  std::chrono::milliseconds get() const;  // 0 before the first

 private:
  std::vector<std::chrono::milliseconds> newest_;  // a ring buffer once it is full
  size_t next_ = 0;
};

// For waits that may take at most `limit`.
struct HangTimes {
  explicit HangTimes(std::chrono::milliseconds limit);

  // Waits shorter than this are not reported: five steps, but at least 20 s and at most a quarter of the limit.
  std::chrono::milliseconds report_threshold(std::chrono::milliseconds median_step) const;
  // The ages at which a wait is reported: after the quiet time, after 5 and after 15 minutes; earlier with a short
  // limit.
  std::array<std::chrono::milliseconds, 3> report_ages(std::chrono::milliseconds median_step) const;

  std::chrono::milliseconds limit;
  std::chrono::milliseconds check_interval;   // of the watchdog
  std::chrono::milliseconds backend_timeout;  // ends calls that the watchdog has not ended
};

}  // namespace dslaunch::comm
