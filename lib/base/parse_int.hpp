// Parses a text that is a number and nothing else. Any thread.
#pragma once
#include <charconv>
#include <concepts>
#include <limits>
#include <optional>
#include <string_view>

namespace dslaunch {

// Decimal digits, with a leading '-' where `low` allows it. Empty for everything else: no text, spaces, a '+', a
// fraction, text after the digits, a number outside [low, high].
template <std::integral Number>
std::optional<Number> parse_int(std::string_view text, Number low = std::numeric_limits<Number>::min(),
                                Number high = std::numeric_limits<Number>::max()) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < low || value > high) return std::nullopt;
  return value;
}

}  // namespace dslaunch
