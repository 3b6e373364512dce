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

  // From now on. `silence_limit` zero: the peer may be silent. `send_interval` zero: the peer does not count our
  // silence.
  void begin(Milliseconds silence_limit, Milliseconds send_interval) {
    limit_ = silence_limit;
    send_interval_ = send_interval;
    on_received();
    last_checked_ = last_received_;
  }
  void on_received(Time now = Deadline::Clock::now()) { last_received_ = now; }
  void on_sent() { last_sent_ = Deadline::Clock::now(); }
  bool heartbeat_due() const { return sends() && Deadline::Clock::now() >= last_sent_ + send_interval_; }
  // Call in every iteration of the loop that reads. A loop that was stalled (SIGSTOP, a machine without a free core)
  // has not read: messages from that time may still be on their way through our own threads, so the silence is counted
  // from zero again.
  bool lost(Time now = Deadline::Clock::now()) {
    if (now - std::exchange(last_checked_, now) > 2 * interval_for(limit_)) on_received(now);
    return expects() && silence(now) >= limit_;
  }
  Milliseconds silence(Time now = Deadline::Clock::now()) const {
    return std::chrono::duration_cast<Milliseconds>(now - last_received_);
  }
  // Between two heartbeats; zero if the peer does not expect any.
  Milliseconds send_interval() const { return send_interval_; }
  // When to check again.
  Deadline next() const {
    if (!sends() && !expects()) return Deadline::never();
    Time next = sends() ? last_sent_ + send_interval_ : last_checked_ + interval_for(limit_);
    if (expects()) next = std::min({next, last_received_ + limit_, last_checked_ + interval_for(limit_)});
    const auto left = std::chrono::ceil<Milliseconds>(next - Deadline::Clock::now());
    // Rather too late than too early by a moment: waking early only costs one more iteration.
    return Deadline::after(std::max(left, Milliseconds(0)) + Milliseconds(1));
  }

 private:
  bool expects() const { return limit_ > Milliseconds(0); }
  bool sends() const { return send_interval_ > Milliseconds(0); }

  Milliseconds limit_{0}, send_interval_{0};
  Time last_received_ = Deadline::Clock::now(), last_sent_ = last_received_, last_checked_ = last_received_;
};

}  // namespace dslaunch::launch
