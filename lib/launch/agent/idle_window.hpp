// Whether a rank is idle: for 20 s it has used less than 1 % of a core and has printed nothing. Pure; one thread.
#pragma once
#include <algorithm>
#include <chrono>
#include <deque>
#include <numeric>

namespace dslaunch::launch {

class IdleWindow {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Milliseconds = std::chrono::milliseconds;
  static constexpr Milliseconds kLength{20000};
  static constexpr Milliseconds kMinUse = kLength / 100;

  explicit IdleWindow(Time start) : quiet_since_(start) {}

  // The rank has printed something, or its activity until now is unknown.
  void restart(Time now) { quiet_since_ = now; }
  // CPU time since the previous call.
  void add(Time now, Milliseconds cpu_time) {
    uses_.push_back({now, cpu_time});
    while (uses_.front().until <= now - kLength) uses_.pop_front();
  }
  bool is_idle(Time now) const {
    const auto used = std::accumulate(uses_.begin(), uses_.end(), Milliseconds(0),
                                      [](Milliseconds sum, const Use& use) { return sum + use.cpu_time; });
    return now - quiet_since_ >= kLength && used < kMinUse;
  }

 private:
  struct Use {
    Time until;
    Milliseconds cpu_time;
  };
  std::deque<Use> uses_;
  Time quiet_since_;
};

}  // namespace dslaunch::launch
