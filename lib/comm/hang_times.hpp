// When a wait for other ranks is long, and when it is reported. Pure.
#pragma once
#include <array>
#include <chrono>
#include <cstddef>
#include <vector>

namespace dslaunch::comm {

// The usual length of a step: the median of the newest steps. One thread at a time.
class MedianTime {
 public:
  void add(std::chrono::milliseconds time);
  std::chrono::milliseconds get() const;  // 0 before the first

 private:
  std::vector<std::chrono::milliseconds> newest_;  // a ring once it is full
  size_t next_ = 0;
};

// For waits that may take `limit`.
struct HangTimes {
  explicit HangTimes(std::chrono::milliseconds limit);

  // Waits shorter than this are not reported: five steps, but at least 20 s and at most a quarter of the limit.
  std::chrono::milliseconds quiet(std::chrono::milliseconds usual_step) const;
  // The ages at which a wait is reported: after the quiet time, after 5 and after 15 minutes; earlier with a short
  // limit.
  std::array<std::chrono::milliseconds, 3> report_ages(std::chrono::milliseconds usual_step) const;

  std::chrono::milliseconds limit;
  std::chrono::milliseconds tick;    // between two looks at this rank
  std::chrono::milliseconds beyond;  // when calls give up by themselves, should the watch not have ended them
};

}  // namespace dslaunch::comm
