#include "option_values.hpp"

#include "base/duration.hpp"
#include "base/format.hpp"

namespace dslaunch::launcher {

static std::string text_of(std::chrono::milliseconds length) {
  return length.count() % 1000 == 0 ? fmt::format("{}s", length.count() / 1000) : fmt::format("{}ms", length.count());
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

}  // namespace dslaunch::launcher
