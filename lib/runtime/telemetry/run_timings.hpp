// "--timings": where a rank's time since the launch went. A caller names the phase that has just ended; the time since
// the previous call is attributed to it. Cheap enough to be always enabled. One thread.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::runtime {

class RunTimings {
 public:
  using Seconds = std::chrono::duration<double>;
  using Clock = std::chrono::steady_clock;

  // `since_launch`, `since_start`: the time since dslaunch started and since this program started, if known.
  explicit RunTimings(std::optional<Seconds> since_launch = {}, std::optional<Seconds> since_start = {});

  void end(std::string_view what, Clock::time_point now = Clock::now());
  // Time that other threads spent meanwhile; not part of the total.
  void add_beside(std::string what, double seconds);
  // A table of all phases, in the order in which they first ended: seconds, share, and the mean for repeated ones;
  // below it, what ran beside them.
  std::string table() const;

 private:
  struct Entry {
    std::string what;
    double seconds = 0;
    int64_t count = 0;
  };
  void add(std::string_view what, double seconds);

  std::vector<Entry> entries_, beside_;
  Clock::time_point last_ = Clock::now();
};

// How long this process has been running, as the kernel counts it (to a hundredth of a second); empty if /proc does not
// provide it.
std::optional<RunTimings::Seconds> time_since_process_start();

}  // namespace dslaunch::runtime
