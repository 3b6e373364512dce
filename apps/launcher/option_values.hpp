// What the text behind an option has to be, before CLI11 reads it: its own reading takes 010 for eight and an empty
// text for an option that was not given.
#pragma once
#include <charconv>
#include <chrono>
#include <limits>
#include <string>

namespace dslaunch::launcher {

// Options that contradict each other or their values. Throws UserError(64).
[[noreturn]] void usage_error(const std::string& message);

// An optional '-' and digits.
bool is_whole_number(const std::string& text);
// Without leading zeros, which mean nothing to people.
std::string without_leading_zeros(const std::string& digits);

// Empty when `text` is a decimal number that fits into N, which it then is in plain form; else what is wrong.
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

// The length of time behind the option `name`. Throws UserError(64) for what is none, and for one below `least`.
std::chrono::milliseconds read_duration(const std::string& name, const std::string& text,
                                        std::chrono::milliseconds least);

// A variable of the shell that is not set makes such a text, and it must not mean that the option was left out.
std::string refuse_empty(std::string& text);

}  // namespace dslaunch::launcher
