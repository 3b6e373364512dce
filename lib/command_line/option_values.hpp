// Checks the values of options before CLI11 parses them: CLI11 would read 010 as octal and treat an empty text as an
// option that was not given. Each check returns the error, or an empty text if the value is accepted, as validators of
// CLI11 do.
#pragma once
#include <charconv>
#include <limits>
#include <string>

namespace dslaunch::command_line {

// For options that contradict each other or their values. Throws UserError(64).
[[noreturn]] void usage_error(const std::string& message);

// An optional '-' and digits.
bool is_whole_number(const std::string& text);
// Without leading zeros, which CLI11 would take as octal.
std::string without_leading_zeros(const std::string& digits);

// Accepts a decimal number that fits into N; `text` is then normalized.
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

// Accepts what strtod reads completely, except nan.
std::string refuse_not_a_number(const std::string& text);
// For a value that is known to be a number.
std::string refuse_below(double least, const std::string& text);
// An unset shell variable produces an empty text, which must not mean that the option was not given.
std::string refuse_empty(const std::string& text);

}  // namespace dslaunch::command_line
