#include "launch/supervisor/restart_backoff.hpp"

#include <algorithm>

namespace dslaunch::launch {

using namespace std::chrono_literals;

static constexpr auto kProgressTime = 60s;
static constexpr double kFirstMs = 1000, kMaxMs = 60000, kJitter = 0.2;

bool RestartBackoff::made_progress(const AttemptProgress& attempt) {
  const int64_t step = attempt.last_step.value_or(0);
  const bool got_further = step > furthest_step_;
  furthest_step_ = std::max(furthest_step_, step);
  return got_further || attempt.run_time >= kProgressTime;
}

std::chrono::milliseconds RestartBackoff::next(const AttemptProgress& attempt) {
  if (made_progress(attempt)) num_without_progress_ = 0;
  if (num_without_progress_++ == 0) return 0ms;
  constexpr int kMaxDoublings = 6;  // 64 s
  const int doublings = std::min(num_without_progress_ - 2, kMaxDoublings);
  const double middle = std::min(kFirstMs * static_cast<double>(1 << doublings), kMaxMs);
  return std::chrono::milliseconds(static_cast<int64_t>(middle * (1 - kJitter + 2 * kJitter * random_())));
}

}  // namespace dslaunch::launch
