// Heartbeats from a separate thread while the loop's thread is busy with other work.
#pragma once
#include <chrono>
#include <thread>

#include "launch/channel/channel.hpp"

namespace dslaunch::launch {

class Heartbeats {
 public:
  // While this object lives it owns the channel. An interval of zero: sends none.
  Heartbeats(ChannelToLauncher& channel, std::chrono::milliseconds interval);
  Heartbeats(const Heartbeats&) = delete;
  Heartbeats& operator=(const Heartbeats&) = delete;

 private:
  std::jthread thread_;  // stopped and joined by the destructor
};

}  // namespace dslaunch::launch
