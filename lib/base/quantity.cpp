#include "base/quantity.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>

#include "base/format.hpp"

namespace dslaunch {

std::string quantity(int64_t count, const char* unit) {
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  auto scaled = static_cast<double>(count);
  for (; scaled >= 999.5 && prefix + 1 < std::size(kPrefixes); ++prefix) scaled /= 1000;
  return fmt::format("{:.3g} {}{}", scaled, kPrefixes[prefix], unit);
}

std::string with_separators(int64_t count) {
  std::string out = std::to_string(count);
  for (auto at = static_cast<std::ptrdiff_t>(out.size()) - 3; at > 0; at -= 3) out.insert(static_cast<size_t>(at), ",");
  return out;
}

// fmt writes the sign of a NaN, which means nothing.
static double without_sign_of_nan(double value) {
  return std::isnan(value) ? std::abs(value) : value;
}

std::string format_ms(double value) {
  value = without_sign_of_nan(value);
  const double size = std::abs(value);
  if (!std::isfinite(value) || size >= 1e5 || (size < 1e-3 && size > 0)) return fmt::format("{:.2e}", value);
  return fmt::format("{:.{}f}", value, size < 1 ? 3 : size < 10 ? 2 : size < 100 ? 1 : 0);
}

std::string format_loss(double loss) {
  loss = without_sign_of_nan(loss);
  const double size = std::abs(loss);
  const bool needs_exponent = size >= 1e5 || (size < 1e-3 && size > 0);
  return needs_exponent && std::isfinite(loss) ? fmt::format("{:.2e}", loss) : fmt::format("{:.4f}", loss);
}

std::string format_rate(double per_second) {
  const char* unit = "";
  for (const char* next : {"k", "M", "G"}) {
    if (std::abs(per_second) < 999.5) break;
    per_second /= 1000;
    unit = next;
  }
  const int decimals = per_second >= 99.95 || (*unit == 0 && per_second >= 9.995) ? 0 : 1;
  return fmt::format("{:.{}f}{}", per_second, decimals, unit);
}

std::string format_time(std::chrono::milliseconds time) {
  const int64_t ms = std::max<int64_t>(0, time.count());
  if (ms < 1000) return fmt::format("{} ms", ms);
  if (ms < 59'950) return fmt::format("{:.1f} s", static_cast<double>(ms) / 1e3);
  const int64_t s = (ms + 500) / 1000;
  if (s < 3600) return fmt::format("{} min {} s", s / 60, s % 60);
  if (s < 86'400) return fmt::format("{} h {} min", s / 3600, s % 3600 / 60);
  return fmt::format("{} d {} h", s / 86'400, s % 86'400 / 3600);
}

}  // namespace dslaunch
