#include "command_line/option_values.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/printable.hpp"

namespace dslaunch::command_line {

void usage_error(const std::string& message) {
  throw UserError(ExitCode::kUsage, printable(message));
}

bool is_whole_number(const std::string& text) {
  const auto digits = text.begin() + (text.starts_with("-") ? 1 : 0);
  return digits != text.end() && std::all_of(digits, text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string without_leading_zeros(const std::string& digits) {
  const std::string sign = digits.starts_with("-") ? "-" : "";
  const size_t first = digits.find_first_not_of('0', sign.size());
  return first == std::string::npos ? "0" : sign + digits.substr(first);
}

std::string refuse_not_a_number(const std::string& text) {
  if (text.empty()) return "needs a number";
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return *end == '\0' && !std::isnan(value) ? "" : fmt::format("'{}' is not a number", text);
}

std::string refuse_below(double least, const std::string& text) {
  if (std::strtod(text.c_str(), nullptr) >= least) return {};
  return fmt::format("{} is too small; the minimum is {}", text, least);
}

std::string refuse_empty(const std::string& text) {
  return text.empty() ? "the value is empty (is a shell variable not set?); omit the option" : "";
}

}  // namespace dslaunch::command_line
