#include "launch/channel/heartbeat_monitor.hpp"

#include <catch2/catch.hpp>

using namespace dslaunch;
using namespace std::chrono_literals;
using launch::HeartbeatMonitor;

namespace {

// Asks every 300 ms from `begin` on, as a loop with a limit of 4 s does at least, until the answer is yes.
std::chrono::milliseconds asked_until_lost(HeartbeatMonitor& pulse, HeartbeatMonitor::Time begin) {
  auto now = begin;
  while (!pulse.lost(now)) now += 300ms;
  return std::chrono::duration_cast<std::chrono::milliseconds>(now - begin);
}

}  // namespace

TEST_CASE("a peer silent for the limit is lost", "[launch][heartbeat_monitor]") {
  HeartbeatMonitor pulse;
  pulse.begin(4s, 1s);
  auto begin = Deadline::Clock::now();
  pulse.on_received(begin);
  CHECK(asked_until_lost(pulse, begin) == 4200ms);
}

TEST_CASE("a blocked loop does not count its own pause as silence of the peer", "[launch][heartbeat_monitor]") {
  HeartbeatMonitor pulse;
  pulse.begin(4s, 1s);
  auto begin = Deadline::Clock::now();
  REQUIRE_FALSE(pulse.lost(begin));
  auto woken = begin + 1min;
  CHECK_FALSE(pulse.lost(woken));
  CHECK(asked_until_lost(pulse, woken) == 4200ms);  // and then as long as anybody
}

TEST_CASE("a local agent sends heartbeats and ignores the launcher's silence", "[launch][heartbeat_monitor]") {
  HeartbeatMonitor pulse;
  pulse.begin(0s, 1s);
  CHECK_FALSE(pulse.next().is_never());
  auto begin = Deadline::Clock::now();
  CHECK_FALSE(pulse.lost(begin));
  CHECK_FALSE(pulse.lost(begin + 1h));
}

TEST_CASE("a launcher that expects heartbeats checks often enough to notice its own pauses",
          "[launch][heartbeat_monitor]") {
  HeartbeatMonitor pulse;
  pulse.begin(20s, 0s);
  CHECK_FALSE(pulse.heartbeat_due());
  auto begin = Deadline::Clock::now();
  pulse.lost(begin);
  CHECK(pulse.next().when() - begin < 2 * HeartbeatMonitor::interval_for(20s));
}

TEST_CASE("silence does not count before a limit is set", "[launch][heartbeat_monitor]") {
  HeartbeatMonitor pulse;
  auto begin = Deadline::Clock::now();
  CHECK_FALSE(pulse.lost(begin));
  CHECK_FALSE(pulse.lost(begin + 1h));
}
