// "--timings": where a rank's time went since the launch. A caller says what has just ended; the time since the call
// before belongs to it. Cheap enough to be always there. One thread.
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

  // `since_launch`: what has passed since dslaunch started and since this program did, where it is known.
  explicit RunTimings(std::optional<Seconds> since_launch = {}, std::optional<Seconds> since_start = {});

  void end(std::string_view what, Clock::time_point now = Clock::now());
  // A table of all that ended, in the order in which it first did: seconds, share, and the mean of what came often.
  std::string table() const;

 private:
  struct Entry {
    std::string what;
    double seconds = 0;
    int64_t count = 0;
  };
  void add(std::string_view what, double seconds);

  std::vector<Entry> entries_;
  Clock::time_point last_ = Clock::now();
};

// How long this process has been running, as the kernel counts it (to a hundredth of a second); nothing where /proc
// does not say.
std::optional<RunTimings::Seconds> time_since_process_start();

}  // namespace dslaunch::runtime
