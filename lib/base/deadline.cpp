#include "base/deadline.hpp"

#include <algorithm>

namespace dslaunch {

std::chrono::milliseconds Deadline::left() const {
  constexpr std::chrono::milliseconds kCap{24 * 3600 * 1000};
  if (is_never()) return kCap;
  auto left = std::chrono::ceil<std::chrono::milliseconds>(when_ - Clock::now());
  return std::clamp(left, std::chrono::milliseconds{0}, kCap);
}

}  // namespace dslaunch
