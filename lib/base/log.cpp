#include "base/log.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>

namespace dslaunch::log {
namespace {

std::atomic<Level> g_level{Level::kInfo};
std::mutex g_speaker_mutex;
std::string g_speaker;  // guarded by g_speaker_mutex

const auto g_start = std::chrono::steady_clock::now();

double seconds_since_start() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - g_start).count();
}

const char* word(Level level) {
  switch (level) {
    case Level::kDebug:
      return "debug: ";
    case Level::kInfo:
      return "";
    case Level::kWarning:
      return "warning: ";
    case Level::kError:
      return "error: ";
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

void set_speaker(std::string_view speaker) {
  std::lock_guard lock(g_speaker_mutex);
  g_speaker = speaker.empty() ? std::string() : std::string(speaker) + ": ";
}

void write(Level level, std::string_view message) {
  if (level < g_level) return;
  std::string line;
  {
    std::lock_guard lock(g_speaker_mutex);
    line = g_speaker;
  }
  if (g_level == Level::kDebug) line += fmt::format("[{:.3f} s] ", seconds_since_start());
  line += word(level);
  line += message;
  line += '\n';
  // One write per line, so that lines of several ranks do not mix; a closed standard error must not stop the program.
  [[maybe_unused]] auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace dslaunch::log
