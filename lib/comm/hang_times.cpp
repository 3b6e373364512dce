#include "comm/hang_times.hpp"

#include <algorithm>

namespace dslaunch::comm {
namespace {

using std::chrono::milliseconds;
using namespace std::chrono_literals;

constexpr size_t kMaxSteps = 64;
constexpr milliseconds kMinThreshold = 20s;
constexpr int kStepsInThreshold = 5;
constexpr int kChecksInThreshold = 16;

}  // namespace

void MedianTime::add(milliseconds time) {
  if (newest_.size() < kMaxSteps) return newest_.push_back(time);
  newest_[next_] = time;
  next_ = (next_ + 1) % kMaxSteps;
}

milliseconds MedianTime::get() const {
  if (newest_.empty()) return 0ms;
  auto times = newest_;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

HangTimes::HangTimes(milliseconds longest)
    : limit(longest),
      check_interval(std::max(report_threshold(0ms) / kChecksInThreshold, milliseconds(10))),
      backend_timeout(longest + std::max(report_threshold(0ms), milliseconds(5000))) {}

milliseconds HangTimes::report_threshold(milliseconds median_step) const {
  return std::min(std::max(kMinThreshold, kStepsInThreshold * median_step), limit / 4);
}

std::array<milliseconds, 3> HangTimes::report_ages(milliseconds median_step) const {
  const milliseconds first = report_threshold(median_step);
  return {first, std::min(std::max<milliseconds>(5min, 2 * first), limit / 2),
          std::min(std::max<milliseconds>(15min, 3 * first), limit * 3 / 4)};
}

}  // namespace dslaunch::comm
