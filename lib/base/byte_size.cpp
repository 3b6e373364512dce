#include "base/byte_size.hpp"

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <string_view>

#include "base/format.hpp"

namespace dslaunch {

std::optional<int64_t> parse_byte_size(const std::string& text) {
  constexpr double kMax = 1152921504606846976.0;  // 2^60
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop == end) return std::nullopt;
  const size_t exponent =
      std::string_view("kmgt").find(static_cast<char>(std::tolower(static_cast<unsigned char>(*stop))));
  if (exponent == std::string_view::npos) return std::nullopt;
  const std::string_view rest(stop + 1, static_cast<size_t>(end - stop - 1));
  const bool is_decimal = rest == "B" || rest == "b";
  if (!is_decimal && !rest.empty() && rest != "iB" && rest != "ib") return std::nullopt;
  const double bytes = number * std::pow(is_decimal ? 1000.0 : 1024.0, static_cast<double>(exponent + 1));
  if (!(bytes >= 1 && bytes < kMax)) return std::nullopt;
  return std::llround(bytes);
}

ByteUnit unit_for(int64_t bytes) {
  for (const ByteUnit unit : {ByteUnit{"GiB", int64_t{1} << 30}, ByteUnit{"MiB", int64_t{1} << 20}}) {
    if (bytes >= unit.bytes / 8 || bytes == 0) return unit;
  }
  return {"KiB", int64_t{1} << 10};
}

std::string format_bytes(int64_t bytes) {
  const ByteUnit unit = unit_for(bytes);
  return fmt::format("{:.2f} {}", unit.count(bytes), unit.name);
}

}  // namespace dslaunch
