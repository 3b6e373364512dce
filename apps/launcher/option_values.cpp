#include "option_values.hpp"

#include <algorithm>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::launcher {

static std::string text_of(std::chrono::milliseconds length) {
  return length.count() % 1000 == 0 ? fmt::format("{}s", length.count() / 1000) : fmt::format("{}ms", length.count());
}

void usage_error(const std::string& message) {
  throw UserError(ExitCode::kUsage, message);
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

std::chrono::milliseconds read_duration(const std::string& name, const std::string& text,
                                        std::chrono::milliseconds least) {
  const auto length = parse_duration(text);
  if (!length) {
    usage_error(fmt::format("{}: '{}' is not a duration; write 90, 90s, 10m, 2h or 500ms, up to 10000d", name, text));
  }
  if (*length < least) usage_error(fmt::format("{} {}: expected at least {}", name, text, text_of(least)));
  return *length;
}

std::string refuse_empty(std::string& text) {
  return text.empty() ? "the value is empty (is a shell variable not set?); omit the option" : "";
}

}  // namespace dslaunch::launcher
