// Log lines on standard error, one write per line; at debug level with the seconds since the program's start. Any
// thread. The prefix (rank, host) is set once at start.
#pragma once
#include <string_view>
#include <utility>

#include "base/format.hpp"

namespace dslaunch::log {

enum class Level { kDebug, kInfo, kWarning, kError };

void set_level(Level lowest);
Level level();
// A prefix for every line, for example "rank 3"; empty: none.
void set_prefix(std::string_view prefix);
// Whether "warning:" and "error:" are written in colour.
void set_color(bool color);
// Writes one line; messages below the level are dropped.
void write(Level level, std::string_view message);

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (level() <= Level::kDebug) write(Level::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (level() <= Level::kInfo) write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  if (level() <= Level::kWarning) write(Level::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace dslaunch::log
