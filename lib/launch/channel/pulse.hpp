// Is the other side of a channel alive? Who has nothing to say sends a heartbeat now and then; silence beyond a limit
// means that the other side, or the way to it, is gone. One thread.
#pragma once
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/deadline.hpp"

namespace dslaunch::launch {

class Pulse {
 public:
  using Milliseconds = std::chrono::milliseconds;
  using Time = Deadline::Clock::time_point;
  static constexpr Milliseconds kInterval{2000};

  // `silence_limit` zero: the other side's end is always seen (a pipe), so silence means nothing.
  void set_silence_limit(Milliseconds limit) {
    limit_ = limit;
    heard();
    listened_ = heard_;
  }
  void heard(Time now = Deadline::Clock::now()) { heard_ = now; }
  void spoke() { spoke_ = Deadline::Clock::now(); }
  bool watched() const { return limit_ > Milliseconds(0); }
  bool due_to_speak() const { return watched() && Deadline::Clock::now() >= spoke_ + interval(); }
  // To be asked in every turn of the loop that listens. One that stood still (SIGSTOP, a machine without a free core)
  // has not listened: what was said meanwhile may still be on its way through our own threads, so the silence starts
  // anew.
  bool lost(Time now = Deadline::Clock::now()) {
    if (now - std::exchange(listened_, now) > 2 * interval()) heard(now);
    return watched() && silence(now) >= limit_;
  }
  Milliseconds silence(Time now = Deadline::Clock::now()) const {
    return std::chrono::duration_cast<Milliseconds>(now - heard_);
  }
  // Between two signs of life; zero where nobody waits for them.
  Milliseconds interval() const { return std::min(kInterval, limit_ / 4); }
  // When to look again.
  Deadline next() const {
    if (!watched()) return Deadline::never();
    auto next = std::min(spoke_ + interval(), heard_ + limit_) - Deadline::Clock::now();
    // A moment later rather than a moment too early, which would only turn the loop once more.
    return Deadline::after(std::max(std::chrono::ceil<Milliseconds>(next), Milliseconds(0)) + Milliseconds(1));
  }

 private:
  Milliseconds limit_{0};
  Time heard_ = Deadline::Clock::now(), spoke_ = heard_, listened_ = heard_;
};

}  // namespace dslaunch::launch
