// Checks the values of options before CLI11 parses them: CLI11 would read 010 as octal and treat an empty text as an
// option that was not given.
#pragma once
#include <charconv>
#include <chrono>
#include <limits>
#include <string>

namespace dslaunch::launcher {

// For options that contradict each other or their values. Throws UserError(64).
[[noreturn]] void usage_error(const std::string& message);

// An optional '-' and digits.
bool is_whole_number(const std::string& text);
// Without leading zeros, which CLI11 would take as octal.
std::string without_leading_zeros(const std::string& digits);

// Empty when `text` is a decimal number that fits into N; `text` is then normalized. Else the error.
template <class N>
std::string read_whole_number(std::string& text) {
  if (!is_whole_number(text)) return text.empty() ? "needs a number" : "'" + text + "' is not a whole number";
  N value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return "'" + text + "' is not between " + std::to_string(std::numeric_limits<N>::min()) + " and " +
           std::to_string(std::numeric_limits<N>::max());
  }
  text = without_leading_zeros(text);
  return {};
}

// The duration given for the option `name`. Throws UserError(64) if `text` is not a duration, or is below `least`.
std::chrono::milliseconds read_duration(const std::string& name, const std::string& text,
                                        std::chrono::milliseconds least);

// An unset shell variable produces an empty text, which must not mean that the option was not given.
std::string refuse_empty(std::string& text);

}  // namespace dslaunch::launcher
