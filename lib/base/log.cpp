#include "base/log.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>

#include "base/printable.hpp"

namespace dslaunch::log {
namespace {

std::atomic<Level> g_level{Level::kInfo};
std::atomic<bool> g_color{false};
std::mutex g_prefix_mutex;
std::string g_prefix;  // guarded by g_prefix_mutex

const auto g_start = std::chrono::steady_clock::now();

double seconds_since_start() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - g_start).count();
}

const char* label(Level level) {
  const bool color = g_color;
  switch (level) {
    case Level::kDebug:
      return "debug: ";
    case Level::kInfo:
      return "";
    case Level::kWarning:
      return color ? "\x1b[33mwarning:\x1b[0m " : "warning: ";
    case Level::kError:
      return color ? "\x1b[1;31merror:\x1b[0m " : "error: ";
  }
  return "";
}

}  // namespace

void set_level(Level lowest) {
  g_level = lowest;
}
Level level() {
  return g_level;
}

void set_color(bool color) {
  g_color = color;
}

void set_prefix(std::string_view prefix) {
  std::lock_guard lock(g_prefix_mutex);
  g_prefix = prefix.empty() ? std::string() : std::string(prefix) + ": ";
}

void write(Level level, std::string_view message) {
  if (level < g_level) return;
  std::string line;
  {
    std::lock_guard lock(g_prefix_mutex);
    line = g_prefix;
  }
  if (g_level == Level::kDebug) line += fmt::format("[{:.3f} s] ", seconds_since_start());
  line += label(level);
  line += printable_lines(message);
  line += '\n';
  // One write per line, so that lines of several ranks do not mix; a closed standard error must not stop the program.
  [[maybe_unused]] auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace dslaunch::log
