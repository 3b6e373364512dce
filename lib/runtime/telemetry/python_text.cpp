#include "runtime/telemetry/python_text.hpp"

#include <cmath>

#include "base/format.hpp"

namespace dslaunch::runtime {

std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::string python_size(size_t bytes) {
  if (bytes == 0) return "0B";
  static constexpr const char* kUnits[] = {"B", "KB", "MB", "GB", "TB", "PB", "EB"};
  double size = static_cast<double>(bytes);
  size_t unit = 0;
  for (; size >= 1024; size /= 1024) ++unit;
  return python_float(std::round(size * 100) / 100) + " " + kUnits[unit];
}

std::string python_gigabytes(int64_t bytes) {
  return python_float(std::round(static_cast<double>(bytes) / (1 << 30) * 100) / 100);
}

std::string python_rounded(double value) {
  return fmt::format("{:g}", std::round(value * 100) / 100);
}

}  // namespace dslaunch::runtime
