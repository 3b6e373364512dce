#include "base/duration.hpp"

#include <charconv>
#include <cmath>

namespace dslaunch {

// 10000 days.
static constexpr double kMaxLength = 86400e3 * 10000;

static std::optional<double> milliseconds_of_unit(std::string_view unit) {
  if (unit.empty() || unit == "s") return 1e3;
  if (unit == "ms") return 1.0;
  if (unit == "m" || unit == "min") return 60e3;
  if (unit == "h") return 3600e3;
  if (unit == "d") return 86400e3;
  return std::nullopt;
}

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc()) return std::nullopt;
  auto unit = milliseconds_of_unit(text.substr(end - text.data()));
  double milliseconds = number * unit.value_or(-1);
  if (!unit || !std::isfinite(milliseconds) || milliseconds < 0 || milliseconds > kMaxLength) return std::nullopt;
  return std::chrono::milliseconds(static_cast<int64_t>(std::llround(milliseconds)));
}

Deadline deadline_after(std::chrono::milliseconds limit) {
  return limit.count() == 0 ? Deadline::never() : Deadline::after(limit);
}

}  // namespace dslaunch
