#include "runtime/telemetry/run_timings.hpp"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "base/format.hpp"

namespace dslaunch::runtime {
namespace {

// The kernel reports the start of a process in ticks, rounded down: a launch less than a tick earlier seems later.
double seconds_a_tick() {
  return 1.0 / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace

RunTimings::RunTimings(std::optional<Seconds> since_launch, std::optional<Seconds> since_start) {
  const double started = since_start ? since_start->count() : 0;
  // With another host's clock this process may seem to have started before the launch.
  if (since_launch && since_launch->count() > started - seconds_a_tick())
    add("launch, until the rank's program started", std::max(0.0, since_launch->count() - started));
  if (since_start) add("loading the program", started);
}

void RunTimings::add(std::string_view what, double seconds) {
  auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const auto& e) { return e.what == what; });
  if (entry == entries_.end()) entry = entries_.insert(entry, {std::string(what)});
  entry->seconds += seconds;
  entry->count += 1;
}

void RunTimings::end(std::string_view what, Clock::time_point now) {
  add(what, Seconds(now - last_).count());
  last_ = now;
}

void RunTimings::add_beside(std::string what, double seconds) {
  beside_.push_back({std::move(what), seconds, 1});
}

std::string RunTimings::table() const {
  double total = 0;
  for (const auto& entry : entries_) total += entry.seconds;
  std::string out = fmt::format("{:<44}{:>12}{:>9}", "where the time went (rank 0)", "seconds", "share");
  for (const auto& entry : entries_) {
    out += fmt::format("\n  {:<42}{:>12.3f}{:>8.1f}%", entry.what, entry.seconds,
                       total > 0 ? 100 * entry.seconds / total : 0);
    if (entry.count > 1) {
      out += fmt::format("   {} times, {:.1f} ms each", entry.count,
                         entry.seconds / static_cast<double>(entry.count) * 1e3);
    }
  }
  out += fmt::format("\n  {:<42}{:>12.3f}", "since the launch", total);
  if (!beside_.empty()) out += "\nbeside these, on other threads";
  for (const auto& entry : beside_) out += fmt::format("\n  {:<42}{:>12.3f}", entry.what, entry.seconds);
  return out;
}

std::optional<RunTimings::Seconds> time_since_process_start() {
  std::ifstream in("/proc/self/stat");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const size_t name_end = text.rfind(')');  // the program's name may contain blanks
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double start_ticks = 0;
  struct timespec now {};
  if (!(fields >> start_ticks) || ::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return std::nullopt;
  const double up = static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
  const double seconds = up - start_ticks * seconds_a_tick();
  return RunTimings::Seconds(std::max(0.0, seconds));
}

}  // namespace dslaunch::runtime
