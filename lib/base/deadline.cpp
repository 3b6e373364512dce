#include "base/deadline.hpp"

#include <algorithm>

namespace dslaunch {

namespace {

constexpr std::chrono::milliseconds kDay = std::chrono::hours(24);
constexpr std::chrono::milliseconds kFarFuture = 36'500 * kDay;  // twice this still fits the clock's nanoseconds

}  // namespace

std::chrono::milliseconds Deadline::left() const {
  if (is_never()) return kFarFuture;
  auto left = std::chrono::ceil<std::chrono::milliseconds>(when_ - Clock::now());
  return std::max(left, std::chrono::milliseconds{0});
}

int Deadline::poll_timeout() const {
  return is_never() ? -1 : static_cast<int>(std::min(left(), kDay).count());
}

}  // namespace dslaunch
