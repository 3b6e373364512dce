#include "base/color.hpp"

#include <unistd.h>

#include <cstdlib>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch {
namespace {

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

// How many bytes of the line are prefixes.
size_t prefix_length(std::string_view line) {
  constexpr std::string_view kOurs = "dslaunch: ", kRanks = "[rank";
  if (line.starts_with(kOurs)) return kOurs.size();
  if (line.starts_with(kRanks)) {
    const size_t end = line.find("] ");
    return end == line.npos ? 0 : end + 2;
  }
  // HOST:RANK|
  const size_t end = line.find("| ");
  if (end == line.npos || end == 0) return 0;
  const std::string_view name = line.substr(0, end);
  const size_t colon = name.rfind(':');
  const bool is_rank = colon != name.npos && colon + 1 < name.size() && name.find(' ') == name.npos &&
                       name.find_first_not_of("0123456789", colon + 1) == name.npos;
  return is_rank ? end + 2 : 0;
}

}  // namespace

ColorChoice parse_color_choice(std::string_view text) {
  if (text == "auto") return ColorChoice::kAuto;
  if (text == "always") return ColorChoice::kAlways;
  if (text == "never") return ColorChoice::kNever;
  throw UserError(ExitCode::kUsage, fmt::format("--color: '{}' is none of auto, always, never", text));
}

bool uses_color(ColorChoice choice, int fd) {
  if (choice != ColorChoice::kAuto) return choice == ColorChoice::kAlways;
  const char* terminal = std::getenv("TERM");
  const bool is_dumb = terminal == nullptr || *terminal == '\0' || std::string_view(terminal) == "dumb";
  return !is_set("NO_COLOR") && !is_dumb && fd >= 0 && ::isatty(fd) == 1;
}

std::string with_color(std::string_view lines) {
  constexpr std::string_view kWarning = "warning:", kError = "error:";
  constexpr std::string_view kYellow = "\x1b[33m", kRed = "\x1b[1;31m", kPlain = "\x1b[0m";
  std::string out;
  while (!lines.empty()) {
    const size_t newline = lines.find('\n');
    const std::string_view line = lines.substr(0, newline == lines.npos ? lines.size() : newline + 1);
    lines.remove_prefix(line.size());
    const size_t start = prefix_length(line);
    const std::string_view text = line.substr(start);
    const std::string_view word = text.starts_with(kWarning) ? kWarning : text.starts_with(kError) ? kError : "";
    out += line.substr(0, start);
    if (!word.empty()) out += fmt::format("{}{}{}", word == kWarning ? kYellow : kRed, word, kPlain);
    out += text.substr(word.size());
  }
  return out;
}

}  // namespace dslaunch
