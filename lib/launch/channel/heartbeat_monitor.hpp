// Whether the peer of a channel is alive. A side with nothing to send sends heartbeats; silence beyond a limit means
// that the peer, or the connection to it, is gone. The two directions are separate: a launcher counts the silence of an
// agent on its own machine, while that agent sees the launcher's end by the pipe's and waits for a launcher that is
// suspended (Ctrl-Z). One thread.
#pragma once
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/deadline.hpp"

namespace dslaunch::launch {

class HeartbeatMonitor {
 public:
  using Milliseconds = std::chrono::milliseconds;
  using Time = Deadline::Clock::time_point;
  static constexpr Milliseconds kInterval{2000};

  // How often a side has to send for a limit on its silence.
  static Milliseconds interval_for(Milliseconds silence_limit) { return std::min(kInterval, silence_limit / 4); }

  // From now on. `silence_limit` zero: the peer may be silent. `speak_interval` zero: the peer does not count our
  // silence.
  void begin(Milliseconds silence_limit, Milliseconds speak_interval) {
    limit_ = silence_limit;
    speak_interval_ = speak_interval;
    heard();
    listened_ = heard_;
  }
  void heard(Time now = Deadline::Clock::now()) { heard_ = now; }
  void spoke() { spoke_ = Deadline::Clock::now(); }
  bool due_to_speak() const { return speaks() && Deadline::Clock::now() >= spoke_ + speak_interval_; }
  // Call in every iteration of the loop that reads. A loop that was stalled (SIGSTOP, a machine without a free core)
  // has not read: messages from that time may still be on their way through our own threads, so the silence is counted
  // from zero again.
  bool lost(Time now = Deadline::Clock::now()) {
    if (now - std::exchange(listened_, now) > 2 * interval_for(limit_)) heard(now);
    return listens() && silence(now) >= limit_;
  }
  Milliseconds silence(Time now = Deadline::Clock::now()) const {
    return std::chrono::duration_cast<Milliseconds>(now - heard_);
  }
  // Between two heartbeats; zero if the peer does not expect any.
  Milliseconds speak_interval() const { return speak_interval_; }
  // When to check again.
  Deadline next() const {
    if (!speaks() && !listens()) return Deadline::never();
    Time next = speaks() ? spoke_ + speak_interval_ : listened_ + interval_for(limit_);
    if (listens()) next = std::min({next, heard_ + limit_, listened_ + interval_for(limit_)});
    const auto left = std::chrono::ceil<Milliseconds>(next - Deadline::Clock::now());
    // Rather too late than too early by a moment: waking early only costs one more iteration.
    return Deadline::after(std::max(left, Milliseconds(0)) + Milliseconds(1));
  }

 private:
  bool listens() const { return limit_ > Milliseconds(0); }
  bool speaks() const { return speak_interval_ > Milliseconds(0); }

  Milliseconds limit_{0}, speak_interval_{0};
  Time heard_ = Deadline::Clock::now(), spoke_ = heard_, listened_ = heard_;
};

}  // namespace dslaunch::launch
