#include "comm/hang_times.hpp"

#include <algorithm>

namespace dslaunch::comm {
namespace {

using std::chrono::milliseconds;
using namespace std::chrono_literals;

constexpr size_t kStepsKept = 64;
constexpr milliseconds kLeastQuiet = 20s;
constexpr int kStepsInQuiet = 5;
constexpr int kTicksInQuiet = 16;

}  // namespace

void MedianTime::add(milliseconds time) {
  if (newest_.size() < kStepsKept) return newest_.push_back(time);
  newest_[next_] = time;
  next_ = (next_ + 1) % kStepsKept;
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
      tick(std::max(quiet(0ms) / kTicksInQuiet, milliseconds(10))),
      beyond(longest + std::max(quiet(0ms), milliseconds(5000))) {}

milliseconds HangTimes::quiet(milliseconds usual_step) const {
  return std::min(std::max(kLeastQuiet, kStepsInQuiet * usual_step), limit / 4);
}

std::array<milliseconds, 3> HangTimes::report_ages(milliseconds usual_step) const {
  const milliseconds first = quiet(usual_step);
  return {first, std::min(std::max<milliseconds>(5min, 2 * first), limit / 2),
          std::min(std::max<milliseconds>(15min, 3 * first), limit * 3 / 4)};
}

}  // namespace dslaunch::comm
